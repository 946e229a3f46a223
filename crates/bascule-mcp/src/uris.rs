//! Qualifies resource URIs with their server where several servers share one listing.
//!
//! A URI that only one server lists stays unchanged. A URI that several servers list becomes `bascule://`, the server,
//! `/` and the unchanged URI: `bascule://docs/file:///etc/hosts`. The URI is not encoded again, so that templates
//! (RFC 6570) work too: `bascule://docs/file:///{+path}` expands to the expansion of the original with the server in
//! front. Encoding would make the percent signs of an expansion ambiguous. A URI that already begins with
//! `bascule://` (from a bridge behind this one) is always qualified, so the form has one meaning in every listing.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::names::QualifiedIndex;

const SCHEME: &str = "bascule://";
/// Characters of a server name that are percent-encoded.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The qualified URIs, or URI templates, of one listing.
///
/// To resolve a URI, try [`QualifiedUris::original`] first, then [`parse_qualified_uri`]: the URI may be an expanded
/// template or part of a tool result. If both fail, the URI is unlisted, and only the servers know which one has it.
#[derive(Debug, Clone, Default)]
pub struct QualifiedUris(QualifiedIndex);

impl QualifiedUris {
    /// Builds the listing from pairs of server and URI. Duplicate pairs count once.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut servers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (server, uri) in pairs {
            servers.entry(uri).or_default().insert(server);
        }
        let mut shown = QualifiedIndex::default();
        for (uri, servers) in servers {
            let as_it_is = servers.len() == 1 && !uri.starts_with(SCHEME);
            for server in servers {
                shown.add(server, uri, if as_it_is { uri.to_owned() } else { qualify_uri(server, uri) });
            }
        }
        Self(shown)
    }

    /// Returns the URI under which a server's URI is listed.
    pub fn qualified(&self, server: &str, uri: &str) -> Option<&str> {
        self.0.qualified(server, uri)
    }

    /// Returns the server and the original URI of a listed URI.
    pub fn original(&self, shown: &str) -> Option<(&str, &str)> {
        self.0.original(shown)
    }
}

/// Returns the qualified form of a URI or template, listed or not.
pub fn qualify_uri(server: &str, uri: &str) -> String {
    format!("{SCHEME}{}/{uri}", utf8_percent_encode(server, ESCAPED))
}

/// Splits a qualified URI into the server and the original URI. The server need not exist.
pub fn parse_qualified_uri(uri: &str) -> Option<(String, String)> {
    let (server, original) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let server = percent_decode_str(server).decode_utf8().ok()?.into_owned();
    // Only the exact spelling of `qualify_uri` is accepted.
    (qualify_uri(&server, original) == uri).then(|| (server, original.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pairs: &[(&str, &str)], expected: &[&str]) {
        let uris = QualifiedUris::from_pairs(pairs.iter().copied());
        let shown: Vec<_> = pairs.iter().map(|(server, uri)| uris.qualified(server, uri).unwrap()).collect();
        assert_eq!(shown, expected);
    }

    // req: GW-02
    #[test]
    fn a_uri_of_one_server_stays_what_it_is() {
        check(&[("a", "file:///x?y=1#z"), ("b", "note://é")], &["file:///x?y=1#z", "note://é"]);
        check(&[("a", "file:///x"), ("a", "file:///x")], &["file:///x", "file:///x"]);
    }

    // req: GW-02
    #[test]
    fn a_uri_of_two_servers_names_them() {
        check(
            &[("a", "file:///x%20y"), ("b", "file:///x%20y")],
            &["bascule://a/file:///x%20y", "bascule://b/file:///x%20y"],
        );
        let uris = QualifiedUris::from_pairs([("a", "file:///x"), ("b", "file:///x")]);
        assert_eq!(uris.original("file:///x"), None);
        assert_eq!(uris.original("bascule://b/file:///x"), Some(("b", "file:///x")));
    }

    // req: GW-02
    #[test]
    fn templates_stay_templates() {
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
    fn a_uri_that_looks_like_ours_is_not_taken_for_another_servers() {
        check(&[("evil", "bascule://docs/file:///x")], &["bascule://evil/bascule://docs/file:///x"]);
    }

    #[test]
    fn what_names_no_server_is_none() {
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
        fn every_uri_leads_back(pairs in prop::collection::vec(("[ab]|[^a-z]{0,4}", uri()), 0..12)) {
            let uris = QualifiedUris::from_pairs(pairs.iter().map(|(server, uri)| (&**server, &**uri)));
            for (server, uri) in &pairs {
                let shown = uris.qualified(server, uri).unwrap();
                prop_assert_eq!(uris.original(shown), Some((&**server, &**uri)));
                prop_assert!(shown == uri || shown == qualify_uri(server, uri));
                if let Some(parsed) = parse_qualified_uri(shown) {
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
        fn no_text_makes_it_panic(uri in "(bascule://)?[%0-9A-Fé/+]*") {
            let _ = parse_qualified_uri(&uri);
        }
    }
}
