//! Results of scripts that are too long for an answer, kept for the session that made them.
//!
//! A client reads one as the resource `bascule://results/ID`, in pages; a script with `bascule.result(id)`.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

const PREFIX: &str = "bascule://results/";
/// A result is kept for this long.
const KEPT_FOR: Duration = Duration::from_secs(30 * 60);
/// The most results, and bytes, kept for one session.
const MAX_PER_SESSION: usize = 16;
const MAX_BYTES_PER_SESSION: usize = 32 << 20;
/// The most bytes kept for all sessions.
const MAX_BYTES: usize = 128 << 20;

/// The kept results of all sessions, oldest first.
#[derive(Default)]
pub(super) struct KeptResults(Mutex<ResultQueue>);

#[derive(Default)]
struct ResultQueue {
    results: VecDeque<KeptResult>,
    last_id: u64,
}

struct KeptResult {
    session: u64,
    id: String,
    text: Arc<str>,
    expires: Instant,
}

impl KeptResults {
    /// Keeps a text for a session, and returns its id. Older results make room for it.
    pub(super) fn keep(&self, session: u64, text: &str) -> String {
        let mut queue = self.lock();
        queue.last_id += 1;
        let id = format!("r{}", queue.last_id);
        queue.results.push_back(KeptResult {
            session,
            id: id.clone(),
            text: text.into(),
            expires: Instant::now() + KEPT_FOR,
        });
        queue.remove_excess(session);
        id
    }

    /// Returns a result of this session.
    pub(super) fn get(&self, session: u64, id: &str) -> Option<Arc<str>> {
        let mut queue = self.lock();
        queue.remove_expired();
        let mut results = queue.results.iter();
        results.find(|kept| kept.session == session && kept.id == id).map(|kept| kept.text.clone())
    }

    /// Removes the results of a session that has ended.
    pub(super) fn remove_session(&self, session: u64) {
        self.lock().results.retain(|kept| kept.session != session);
    }

    fn lock(&self) -> MutexGuard<'_, ResultQueue> {
        self.0.lock().expect("no code panics while it holds the lock")
    }
}

impl ResultQueue {
    fn remove_expired(&mut self) {
        let now = Instant::now();
        self.results.retain(|kept| kept.expires > now);
    }

    /// Removes the oldest results until the limits are kept. The newest stays.
    fn remove_excess(&mut self, session: u64) {
        self.remove_expired();
        loop {
            let of_session = || self.results.iter().filter(|kept| kept.session == session);
            let (count, bytes) =
                (of_session().count(), of_session().map(|kept| kept.text.len()).sum::<usize>());
            let all: usize = self.results.iter().map(|kept| kept.text.len()).sum();
            let oldest = match (count > MAX_PER_SESSION || bytes > MAX_BYTES_PER_SESSION, all > MAX_BYTES) {
                (true, _) => self.results.iter().position(|kept| kept.session == session),
                (false, true) => Some(0),
                (false, false) => None,
            };
            match oldest.filter(|index| index + 1 < self.results.len()) {
                Some(index) => drop(self.results.remove(index)),
                None => return,
            }
        }
    }
}

/// A page of a kept result, as its URI names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultPage<'a> {
    pub(super) id: &'a str,
    offset: usize,
    length: Option<usize>,
}

impl<'a> ResultPage<'a> {
    /// Parses `bascule://results/ID?offset=N&length=N`; both numbers may be absent.
    pub(super) fn parse(uri: &'a str) -> Option<Self> {
        let rest = uri.strip_prefix(PREFIX)?;
        let (id, query) = rest.split_once('?').unwrap_or((rest, ""));
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok())
        };
        Some(Self { id, offset: number("offset").unwrap_or(0), length: number("length") })
    }

    /// Builds the result of `resources/read`: the page, and the URI of the next one.
    pub(super) fn read(&self, uri: &str, text: &str, page_bytes: usize) -> String {
        let start = text.floor_char_boundary(self.offset.min(text.len()));
        let wanted =
            start.saturating_add(self.length.unwrap_or(page_bytes).clamp(4, 1 << 20)).min(text.len());
        let end = text.floor_char_boundary(wanted);
        let next = (end < text.len()).then(|| format!("{PREFIX}{}?offset={end}", self.id));
        let is_whole = start == 0 && end == text.len();
        let page = json!({ "offset": start, "bytes": end - start, "totalBytes": text.len(), "next": next });
        json!({ "contents": [{
            "uri": uri,
            "mimeType": if is_whole { "application/json" } else { "text/plain" },
            "text": &text[start..end],
            "_meta": { "bascule/page": page },
        }] })
        .to_string()
    }
}

/// Returns the URI of a kept result.
pub(super) fn uri_of(id: &str) -> String {
    format!("{PREFIX}{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-15
    #[test]
    fn result_belongs_to_its_session() {
        let results = KeptResults::default();
        let id = results.keep(1, "one");
        assert_eq!(results.get(1, &id).as_deref(), Some("one"));
        assert_eq!(results.get(2, &id), None);
        results.remove_session(1);
        assert_eq!(results.get(1, &id), None);
    }

    // req: CM-15
    #[test]
    fn oldest_results_make_room() {
        let results = KeptResults::default();
        let ids: Vec<String> = (0..MAX_PER_SESSION + 2).map(|_| results.keep(1, "x")).collect();
        assert_eq!(results.get(1, &ids[1]), None);
        assert!(results.get(1, &ids[2]).is_some());
        let long = "x".repeat(MAX_BYTES_PER_SESSION + 1);
        let (long, last) = (results.keep(2, &long), results.keep(2, "y"));
        assert_eq!(results.get(2, &long), None);
        assert!(results.get(2, &last).is_some());
    }

    // req: CM-15
    #[test]
    fn reads_pages_at_character_boundaries() {
        let page = |uri: &str| -> serde_json::Value {
            let page = ResultPage::parse(uri).unwrap().read(uri, "aé😀bcdefgh", 5);
            serde_json::from_str(&page).unwrap()
        };
        let first = page("bascule://results/r1");
        assert_eq!(first["contents"][0]["text"], "aé");
        let next = first["contents"][0]["_meta"]["bascule/page"]["next"].as_str().unwrap();
        assert_eq!(next, "bascule://results/r1?offset=3");
        assert_eq!(page(next)["contents"][0]["text"], "😀b");
        assert_eq!(page("bascule://results/r1?offset=3&length=100")["contents"][0]["text"], "😀bcdefgh");
        assert_eq!(page("bascule://results/r1?offset=99")["contents"][0]["text"], "");
        assert_eq!(ResultPage::parse("bascule://files/x"), None);
    }
}
