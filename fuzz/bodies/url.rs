//! Any text as a URL: nothing may panic, and its address is the same URL. In a plain path `::` may be part of a name, which no URL has.

use cuzarr::store::Url;

/// Parses `bytes`. Returns how many URLs are in the chain.
pub fn check(bytes: &[u8]) -> usize {
    let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
    let Ok(url) = Url::parse(text) else { return 0 };
    let chain: Vec<_> = std::iter::successors(Some(&url), |url| url.wrapped()).collect();
    for url in &chain {
        let _ = (url.split_name(), url.to_string());
    }
    if !chain.iter().any(|url| url.path().contains("::")) {
        assert_eq!(Url::parse(&url.address()).expect("an address is a URL"), url, "{text}");
    }
    chain.len()
}
