//! Qualified URIs: makes the URIs of resources unique across servers, and looks them up.
//!
//! A URI that only one server lists stays unchanged. One that several list becomes `bascule://`, the server, `/` and the
//! URI: `bascule://docs/file:///etc/hosts`. The URI is not encoded again, so that templates (RFC 6570) work, too:
//! `bascule://docs/file:///{+path}` expands to the same as the original with the server before it, while percent signs of
//! an expansion could not be told from ours. A URI that itself begins with `bascule://` (a bridge behind this one) always
//! names its server, so that this form has one meaning in every listing.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::names::QualifiedIndex;

const SCHEME: &str = "bascule://";
/// The characters of a server's name that are escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

impl QualifiedIndex {
    /// Indexes pairs of server and URI, or URI template. Duplicate pairs count once.
    ///
    /// To read a URI, try [`QualifiedIndex::original`] first, then [`parse_qualified_uri`]: it may come from a template or
    /// from the result of a tool. A URI that neither knows is in no listing: its server is found by asking all.
    pub fn of_uris<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut servers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (server, uri) in pairs {
            servers.entry(uri).or_default().insert(server);
        }
        let mut index = Self::default();
        for (uri, servers) in servers {
            let is_unique = servers.len() == 1 && !uri.starts_with(SCHEME);
            for server in servers {
                index.add(server, uri, if is_unique { uri.to_owned() } else { qualify_uri(server, uri) });
            }
        }
        index
    }
}

/// Returns the form of a URI or template that names its server.
pub fn qualify_uri(server: &str, uri: &str) -> String {
    format!("{SCHEME}{}/{uri}", utf8_percent_encode(server, ESCAPED))
}

/// Returns the server and its original URI, if the URI has the form that names its server. Does not check that the
/// server exists.
pub fn parse_qualified_uri(uri: &str) -> Option<(String, String)> {
    let (server, original) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let server = percent_decode_str(server).decode_utf8().ok()?.into_owned();
    // Only the form that `qualify_uri` writes is accepted.
    (qualify_uri(&server, original) == uri).then(|| (server, original.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pairs: &[(&str, &str)], expected: &[&str]) {
        let uris = QualifiedIndex::of_uris(pairs.iter().copied());
        let qualified: Vec<_> =
            pairs.iter().map(|(server, uri)| uris.qualified(server, uri).unwrap()).collect();
        assert_eq!(qualified, expected);
    }

    // req: GW-02
    #[test]
    fn keeps_the_uri_of_one_server() {
        check(&[("a", "file:///x?y=1#z"), ("b", "note://é")], &["file:///x?y=1#z", "note://é"]);
        check(&[("a", "file:///x"), ("a", "file:///x")], &["file:///x", "file:///x"]);
    }

    // req: GW-02
    #[test]
    fn qualifies_the_uri_of_two_servers() {
        check(
            &[("a", "file:///x%20y"), ("b", "file:///x%20y")],
            &["bascule://a/file:///x%20y", "bascule://b/file:///x%20y"],
        );
        let uris = QualifiedIndex::of_uris([("a", "file:///x"), ("b", "file:///x")]);
        assert_eq!(uris.original("file:///x"), None);
        assert_eq!(uris.original("bascule://b/file:///x"), Some(("b", "file:///x")));
    }

    // req: GW-02
    #[test]
    fn keeps_templates_usable() {
        let template = "repo://{owner}/{+path}{?rev}";
        check(
            &[("a", template), ("b", template)],
            &["bascule://a/repo://{owner}/{+path}{?rev}", "bascule://b/repo://{owner}/{+path}{?rev}"],
        );
        let expanded = "bascule://b/repo://me%2Fyou/src/a b?rev=1";
        assert_eq!(parse_qualified_uri(expanded), Some(("b".into(), "repo://me%2Fyou/src/a b?rev=1".into())));
    }

    // req: GW-02
    #[test]
    fn qualifies_forged_uris() {
        check(&[("evil", "bascule://docs/file:///x")], &["bascule://evil/bascule://docs/file:///x"]);
    }

    #[test]
    fn rejects_uris_without_a_server() {
        for uri in [
            "file:///x",
            "bascule:/a/x",
            "bascule://a",
            "bascule://%/x",
            "bascule://%é/x",
            "bascule://%61/x",
            "bascule://%FF/x",
            "bascule://a b/x",
        ] {
            assert_eq!(parse_qualified_uri(uri), None, "{uri}");
        }
    }

    fn uri() -> impl Strategy<Value = String> {
        prop_oneof!["[ab]{1,2}", "(bascule://)?[ab]?/?[ab]", ".{0,4}"]
    }

    proptest! {
        // req: GW-02
        #[test]
        fn makes_uris_that_lead_back(pairs in prop::collection::vec(("[ab]|[^a-z]{0,4}", uri()), 0..12)) {
            let uris = QualifiedIndex::of_uris(pairs.iter().map(|(server, uri)| (&**server, &**uri)));
            for (server, uri) in &pairs {
                let qualified = uris.qualified(server, uri).unwrap();
                prop_assert_eq!(uris.original(qualified), Some((&**server, &**uri)));
                prop_assert!(qualified == uri || qualified == qualify_uri(server, uri));
                if let Some(parsed) = parse_qualified_uri(qualified) {
                    prop_assert_eq!(parsed, (server.clone(), uri.clone()));
                }
            }
        }

        // req: GW-02
        #[test]
        fn the_prefix_is_reversible_for_any_text(server: String, uri: String) {
            prop_assert_eq!(parse_qualified_uri(&qualify_uri(&server, &uri)), Some((server, uri)));
        }

        #[test]
        fn never_panics(uri in "(bascule://)?[%0-9A-Fé/+]*") {
            let _ = parse_qualified_uri(&uri);
        }
    }
}
