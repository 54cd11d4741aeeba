"""Serve tiles out of a bucket, with a cache of chunks

A map or slide viewer asks a small service for tiles, and the service reads them out of an image in a bucket. Tiles are smaller than chunks, and
users pan to and fro, so the same chunks are wanted again and again. Open the image with `chunk_cache=True`: each decoded chunk is kept in
memory, within a limit, and trusted for a minute before the bucket is asked whether it changed.

The program starts a web server in place of the bucket and counts its requests, while a viewer pans over an image of several levels. A real
service calls `tile` from FastAPI or Flask; any number of its threads may read one array at once.
"""

import argparse
import http.server
import pathlib
import tempfile
import threading

import numpy as np

import cuzarr

TILE = 128


class Bucket(http.server.BaseHTTPRequestHandler):
    """Objects with ranges and entity tags, as buckets serve them."""

    protocol_version = "HTTP/1.1"
    requests = 0

    def do_GET(self):
        type(self).requests += 1
        path = pathlib.Path(self.server.root, self.path.lstrip("/"))
        content = path.read_bytes() if path.is_file() else None
        status, wanted = (404, b"") if content is None else (200, content)
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if content is not None and asked:
            first, last = asked.split("-")
            start = int(first) if first else len(content) - int(last)
            stop = min(int(last) + 1, len(content)) if first and last else len(content)
            status, wanted = 206, content[start:stop]
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        if content is not None:
            self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.send_header("Content-Length", str(len(wanted)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(wanted)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


def make_slide(path, size):
    """Tissue of two tones with fine grain, as an OME-Zarr image of several levels."""
    rng = np.random.default_rng(37)
    y, x = np.mgrid[:size, :size] / 40
    tissue = 120 + 60 * np.sin(y + 2 * np.sin(x / 3)) * np.cos(x - np.sin(y)) + rng.normal(0, 12, (size, size))
    cuzarr.pyramid(tissue.clip(0, 255).astype("uint8"), path, axes="yx", chunks=(512, 512), levels=3)


def tile(levels, level, row, column):
    """One tile of a level: what the service sends."""
    return cuzarr.xp.asnumpy(levels[level][row * TILE : (row + 1) * TILE, column * TILE : (column + 1) * TILE])


def pan(levels, tiles):
    """What a user asks for: an overview, then steps to the right, down, and back again, with 3 x 3 tiles on the screen."""
    corners = [(0, step) for step in range(tiles - 2)] + [(step, tiles - 3) for step in range(tiles - 2)]
    views = [(2, 0, 0), *((0, row, column) for row, column in [*corners, *reversed(corners)])]
    for level, top, left in views:
        for row in range(top, top + 3):
            for column in range(left, left + 3):
                tile(levels, level, row, column)
        yield level, top, left


def main(arguments):
    with tempfile.TemporaryDirectory() as folder:
        make_slide(f"{folder}/slide.ome.zarr", arguments.size)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
        server.root, server.daemon_threads = folder, True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/slide.ome.zarr"

        counts = {}
        for has_cache in (False, True):
            image = cuzarr.ome.open_image(cuzarr.open_group(url, mode="r", chunk_cache=has_cache))
            levels = image.arrays()
            before, counts[has_cache] = Bucket.requests, [0]
            for _, *_ in pan(levels, arguments.size // TILE):
                counts[has_cache].append(Bucket.requests - before)
            name = "with the cache" if has_cache else "without"
            print(f"{9 * (len(counts[has_cache]) - 1)} tiles, {name}: {counts[has_cache][-1]} requests to the bucket")
        print(f"the cache holds {cuzarr.memory.info('cpu').chunk_cache / 2**20:.1f} MiB of chunks")
        assert counts[True][-1] < counts[False][-1] / 10
        server.shutdown()
        draw(arguments.picture, cuzarr.xp.asnumpy(cuzarr.open_array(f"{folder}/slide.ome.zarr", path="1")[:]), counts)


def draw(path, overview, counts):
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 1, figsize=(5.4, 6.6), layout="constrained", height_ratios=(3, 2))
    side = TILE / 2
    axes[0].imshow(overview, cmap="pink")
    for at in np.arange(0, overview.shape[0], side):
        axes[0].axhline(at, color="white", linewidth=0.4)
        axes[0].axvline(at, color="white", linewidth=0.4)
    middle, end = 1.5 * side, overview.shape[0] - 1.5 * side
    axes[0].plot([middle, end, end], [middle, middle, end], "o-", color="black", linewidth=2)
    axes[0].set(title="the way of the viewer, there and back", xticks=[], yticks=[])
    axes[1].plot(counts[False], label="without")
    axes[1].plot(counts[True], label="with the cache")
    axes[1].set(title="requests to the bucket", xlabel="views", ylim=(0, None))
    axes[1].legend()
    figure.savefig(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="pixels of a side")
    parser.add_argument("--picture", default="tiles.png")
    arguments = parser.parse_args()
    if arguments.size < 3 * TILE:
        parser.error("--size must be 384 or more, three tiles")
    main(arguments)
