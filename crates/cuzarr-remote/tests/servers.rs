//! The stores against servers that other projects made: moto for S3, Azurite for Azure, nginx for files behind HTTP.
//!
//! `scripts/servers` installs Azurite and nginx and prints a folder for `CUZARR_TEST_SERVERS`; moto is in the Python environment. A test
//! whose server is not there says so past the harness, so that the reason is shown.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cuzarr::Selection;
use cuzarr::meta::DataType;
use cuzarr::node::{Array, ArrayOptions, Consolidation, Group, consolidate_metadata};
use cuzarr::plan::AxisSelection;
use cuzarr::store::{ByteRange, LocalStore, Store, StoreExt, conformance};
use cuzarr_remote::{StorageOptions, registry, registry_with};

/// The account that every Azurite has, and its key.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A server in a process of its own, which ends with the test.
struct Process {
    child: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Process {
    /// Starts a program on a free port, which `arguments` gets with a folder; `None`, and a line about it, when it is not installed.
    fn start(name: &str, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Option<Process> {
        match found(name) {
            Some(program) => Some(Process::run(&program, arguments)),
            None => {
                skip(name);
                None
            }
        }
    }

    fn run(program: &Path, arguments: impl Fn(u16, &Path) -> Vec<String>) -> Process {
        let name = program.display();
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .args(arguments(port, folder.path()))
            .current_dir(folder.path())
            // The sanitizers of the kernels on the CPU are for this process alone.
            .env_remove("LD_PRELOAD")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut started = Process { child, address: format!("127.0.0.1:{port}"), folder };
        let begun = Instant::now();
        while TcpStream::connect(&started.address).is_err() {
            let ended = started.child.try_wait().unwrap();
            assert!(ended.is_none(), "{name} ended: {ended:?}");
            assert!(begun.elapsed() < Duration::from_secs(120), "{name} does not listen");
            std::thread::yield_now();
        }
        started
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request without a body, and returns the status of its answer.
    fn request(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n", self.address);
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Says that a test is left out. The harness keeps back what `println!` prints in tests that pass.
fn skip(name: &str) {
    let line = format!("skipped: {name} is not installed; scripts/servers installs it\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// A program of the checkout's environment, of `CUZARR_TEST_SERVERS`, or of the search path.
fn found(name: &str) -> Option<PathBuf> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    let installed = std::env::var_os("CUZARR_TEST_SERVERS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [checkout.join(".venv/bin"), PathBuf::from("/usr/sbin")].into_iter().chain(installed);
    let mut programs = folders.chain(std::env::split_paths(&path)).map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

/// Runs the suite of stores, each case in a folder of its own.
fn conforms(options: &StorageOptions, bucket: &str) {
    let folders = AtomicUsize::new(0);
    conformance::run(&|| {
        let folder = folders.fetch_add(1, Ordering::Relaxed);
        registry_with(options.clone()).open(&format!("{bucket}/case-{folder}")).unwrap()
    });
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Writers of parts of one chunk lose nothing, a large value takes many parts, and lists and deletes go past one page.
fn keeps_what_writers_write(store: &Arc<dyn Store>) {
    let array = Array::builder([16], DataType::UInt8).chunks([16]).create_in(Arc::clone(store), "shared").unwrap();
    std::thread::scope(|scope| {
        for part in 0..8_u8 {
            let array = &array;
            let own = AxisSelection { start: u64::from(part) * 2, count: 2, step: 1, dropped: false };
            scope.spawn(move || array.write(&Selection::new(vec![own]).unwrap(), &[part + 1; 2]).unwrap());
        }
    });
    let expected: Vec<u8> = (0..16).map(|at| at / 2 + 1).collect();
    assert_eq!(array.read::<u8>(&Selection::all(&[16])).unwrap()[..], expected);

    let large = bytes((70 << 20) + 3);
    store.write("large", &large).unwrap();
    assert!(store.get("large").unwrap().as_ref() == Some(&large), "the value of 70 MiB is another one");
    let tail = store.get_range("large", ByteRange::Suffix { size_bytes: 5 }).unwrap();
    assert_eq!(tail.as_deref(), Some(&large[large.len() - 5..]));
    assert!(!store.write_if_absent("large", b"1").unwrap(), "a value that is there was written once more");

    let keys: Vec<_> = (0..1_203).map(|at| format!("many/{at:04}")).collect();
    std::thread::scope(|scope| {
        for keys in keys.chunks(keys.len().div_ceil(8)) {
            scope.spawn(move || keys.iter().for_each(|key| store.write(key, b"1").unwrap()));
        }
    });
    assert_eq!(store.list("many").unwrap(), keys);
    store.delete_prefix("many").unwrap();
    assert!(store.list("many").unwrap().is_empty() && store.exists("large").unwrap());
}

/// Moto's server, which answers one request after the other. Its own program answers several at once, and compares and
/// writes for a conditional write in two steps. S3 does both in one.
const MOTO: &str = "
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

answer, alone = DomainDispatcherApplication(create_backend_app), threading.Lock()

def one_by_one(environ, start):
    with alone:
        return list(answer(environ, start))

run_simple('127.0.0.1', int(sys.argv[1]), one_by_one, threaded=True)
";

#[test]
fn s3_of_moto() {
    // Moto is installed with its program, beside the interpreter that has it.
    let Some(interpreter) = found("moto_server").map(|program| program.with_file_name("python")) else {
        return skip("moto_server");
    };
    let arguments = |port: u16, _: &Path| vec!["-c".into(), MOTO.into(), port.to_string()];
    let moto = Process::run(&interpreter, arguments);
    assert_eq!(moto.request("PUT", "/bucket", &[]), 200);
    let options = [("key", "k"), ("secret", "s"), ("endpoint_url", &moto.url()), ("region", "us-east-1")];
    let options = StorageOptions::from_iter(options);
    conforms(&options, "s3://bucket");
    keeps_what_writers_write(&registry_with(options.clone()).open("s3://bucket/shared").unwrap());
    let error = registry_with(options).open("s3://no-bucket/a").unwrap().get("zarr.json").unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error:?}");
}

#[test]
fn blobs_of_azurite() {
    let arguments = |port: u16, _: &Path| {
        let port = port.to_string();
        let plain = ["--blobHost", "127.0.0.1", "--blobPort", &port, "--inMemoryPersistence", "--skipApiVersionCheck"];
        plain.map(String::from).to_vec()
    };
    let Some(azurite) = Process::start("azurite-blob", arguments) else { return };
    assert_eq!(make_container(&azurite, "container"), 201);
    let endpoint = format!("{}/{ACCOUNT}", azurite.url());
    let options = [("account_name", ACCOUNT), ("account_key", ACCOUNT_KEY), ("endpoint", &endpoint)];
    let options = StorageOptions::from_iter(options);
    conforms(&options, "az://container");
    keeps_what_writers_write(&registry_with(options.clone()).open("az://container/shared").unwrap());
    let error = registry_with(options).open("az://no-container/a").unwrap().get("zarr.json").unwrap_err();
    assert!(error.to_string().contains("ContainerNotFound"), "{error:?}");
}

/// Makes a container by a request with a shared key
/// (<https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key>), and returns its status.
fn make_container(azurite: &Process, name: &str) -> u16 {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06\n");
    let signed = format!("PUT{}{headers}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container", "\n".repeat(12));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &BASE64_STANDARD.decode(ACCOUNT_KEY).unwrap());
    let signature = BASE64_STANDARD.encode(ring::hmac::sign(&key, signed.as_bytes()));
    let authorization = format!("SharedKey {ACCOUNT}:{signature}");
    let headers = [("x-ms-date", &*date), ("x-ms-version", "2021-08-06"), ("Authorization", &authorization)];
    azurite.request("PUT", &format!("/{ACCOUNT}/{name}?restype=container"), &headers)
}

/// A hierarchy with a plain and a sharded array, with consolidated metadata.
fn make_hierarchy(folder: &Path, values: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(folder).unwrap());
    for (name, shards) in [("plain", None), ("sharded", Some([200, 300]))] {
        let array = Array::builder([200, 300], DataType::UInt8).chunks([20, 30]).compressor("none");
        let array = shards.into_iter().fold(array, |array, shards| array.shards(shards));
        array.create_in(Arc::clone(&store), name).unwrap().write(&Selection::all(&[200, 300]), values).unwrap();
    }
    consolidate_metadata(store, "", None, ArrayOptions::default()).unwrap();
}

#[test]
fn files_of_nginx() {
    let arguments = |port: u16, folder: &Path| {
        let place = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {place}/{name};"))
            .concat();
        let text = format!(
            "daemon off; master_process off; pid {place}/pid; error_log {place}/errors; worker_processes 1;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off; {temporary}\n\
             server {{ listen 127.0.0.1:{port}; root {place}/files;\n\
             location /without-ranges/ {{ alias {place}/files/; max_ranges 0; }}\n\
             location /moved/ {{ return 302 /data/; }}\n\
             location ~ ^/elsewhere/(.*)$ {{ return 307 /data/$1; }} }} }}\n",
        );
        std::fs::create_dir(folder.join("files")).unwrap();
        std::fs::write(folder.join("nginx.conf"), text).unwrap();
        let errors = folder.join("errors").display().to_string();
        vec!["-e".into(), errors, "-p".into(), folder.display().to_string(), "-c".into(), format!("{place}/nginx.conf")]
    };
    let Some(nginx) = Process::start("nginx", arguments) else { return };
    let values = bytes(200 * 300);
    let folder = nginx.folder.path().join("files/data");
    make_hierarchy(&folder, &values);
    let large = bytes((20 << 20) + 5);
    std::fs::write(folder.join("large"), &large).unwrap();
    std::fs::write(folder.join("empty"), b"").unwrap();

    for place in ["data", "elsewhere"] {
        let store = registry().open(&format!("{}/{place}", nginx.url())).unwrap();
        assert!(store.get("large").unwrap().as_ref() == Some(&large), "'{place}': the value of 20 MiB is another one");
        let span = ByteRange::Span { offset: 19 << 20, size_bytes: 1000 };
        assert_eq!(store.get_range("large", span).unwrap().as_deref(), Some(&large[19 << 20..(19 << 20) + 1000]));
        let suffix = store.get_range("large", ByteRange::Suffix { size_bytes: 7 }).unwrap();
        assert_eq!(suffix.as_deref(), Some(&large[large.len() - 7..]));
        assert_eq!(store.get("empty").unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(
            (store.get("missing").unwrap(), store.size_bytes("large").unwrap()),
            (None, Some(large.len() as u64))
        );
        let error = store.get_range("large", ByteRange::Span { offset: 30 << 20, size_bytes: 1 }).unwrap_err();
        assert!(error.message().contains("value is too short"), "{error:?}");
        let group = Group::open(store, "", None, Consolidation::WhenPresent, ArrayOptions::default()).unwrap();
        for name in ["plain", "sharded"] {
            let array = group.array(name).unwrap();
            assert!(array.read::<u8>(&Selection::all(&[200, 300])).unwrap()[..] == values, "'{place}/{name}'");
        }
    }
    let whole = registry().open(&format!("{}/without-ranges/data", nginx.url())).unwrap();
    assert!(whole.get("large").unwrap().as_ref() == Some(&large));
    let error = whole.get_range("large", ByteRange::Span { offset: 5, size_bytes: 5 }).unwrap_err();
    assert!(error.message().contains("ignores range requests"), "{error:?}");
}
