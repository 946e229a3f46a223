//! Qualifies the names of several servers in one listing, and maps qualified names back.
//!
//! The tool (or prompt) `search` of the server `docs` is listed as `docs__search`. Clients and models accept at most
//! 64 characters of `[A-Za-z0-9_-]`. Any other name is cut, its illegal characters are replaced, and a hash of the
//! original is appended: `search.all` becomes `docs__search_all_jq8qrm9ere`. A qualified name is looked up, never
//! parsed: `a__b__c` may be `b__c` of `a` or `c` of `a__b`.

use std::collections::{BTreeSet, HashMap};

/// Maximum length of a qualified name.
pub const LONGEST_NAME: usize = 64;

/// Length of a hash in characters: 50 bits.
const HASH: usize = 10;

/// The qualified names of one listing.
///
/// A qualified name depends only on the server and the name, not on other entries or their order. If two names
/// collide, the first by server, then by name, keeps its form. The others get a hash of their own server and name,
/// so they are stable too as long as the collision lasts.
#[derive(Debug, Clone, Default)]
pub struct QualifiedNames(QualifiedIndex);

impl QualifiedNames {
    /// Builds the listing from pairs of server and name. Duplicate pairs count once.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut shown = QualifiedIndex::default();
        for (server, name) in pairs.into_iter().collect::<BTreeSet<_>>() {
            let fits = spellings(server, name).find(|text| shown.original(text).is_none());
            shown.add(server, name, fits.expect("there is no end of hashes"));
        }
        Self(shown)
    }

    /// Returns the qualified name of a server's name.
    pub fn qualified(&self, server: &str, name: &str) -> Option<&str> {
        self.0.qualified(server, name)
    }

    /// Returns the server and the original name of a qualified name.
    pub fn original(&self, shown: &str) -> Option<(&str, &str)> {
        self.0.original(shown)
    }
}

/// Candidates for a qualified name, best first: the plain form if it is legal, then forms with successive hashes.
fn spellings(server: &str, name: &str) -> impl Iterator<Item = String> {
    let plain = format!("{server}__{name}");
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let head = plain.chars().map(|c| if legal(c) { c } else { '_' });
    let head: String = head.take(LONGEST_NAME - HASH - 1).collect();
    let as_it_is = (plain.len() <= LONGEST_NAME && plain.chars().all(legal)).then_some(plain);
    let pair = [server.as_bytes(), name.as_bytes()].join(&NEVER_IN_TEXT);
    as_it_is.into_iter().chain((0u64..).map(move |attempt| format!("{head}_{}", hash(&pair, attempt))))
}

/// A byte that never occurs in UTF-8. It separates the parts of the hash input.
const NEVER_IN_TEXT: u8 = 0xff;

/// FNV-1a with a final mix, because its last input bytes hardly affect the upper bits. It must never change:
/// policies and notes of users refer to the resulting names.
fn hash(pair: &[u8], attempt: u64) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in pair.iter().chain(&[NEVER_IN_TEXT]).chain(&attempt.to_le_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    let digit =
        |place: usize| char::from(b"0123456789abcdefghijklmnopqrstuv"[(hash >> (place * 5)) as usize % 32]);
    (0..HASH).map(digit).collect()
}

/// Maps pairs of server and original to their qualified form and back. Qualified forms are unique.
#[derive(Debug, Clone, Default)]
pub(crate) struct QualifiedIndex {
    by_server: HashMap<String, HashMap<String, usize>>,
    by_shown: HashMap<String, usize>,
    all: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    server: String,
    original: String,
    shown: String,
}

impl QualifiedIndex {
    pub(crate) fn add(&mut self, server: &str, original: &str, shown: String) {
        let number = self.all.len();
        self.by_server.entry(server.to_owned()).or_default().insert(original.to_owned(), number);
        self.by_shown.insert(shown.clone(), number);
        self.all.push(Entry { server: server.to_owned(), original: original.to_owned(), shown });
    }

    pub(crate) fn qualified(&self, server: &str, original: &str) -> Option<&str> {
        let number = *self.by_server.get(server)?.get(original)?;
        Some(&self.all[number].shown)
    }

    pub(crate) fn original(&self, shown: &str) -> Option<(&str, &str)> {
        let entry = &self.all[*self.by_shown.get(shown)?];
        Some((&entry.server, &entry.original))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pairs: &[(&str, &str)], expected: &[&str]) {
        let names = QualifiedNames::from_pairs(pairs.iter().copied());
        let shown: Vec<_> =
            pairs.iter().map(|(server, name)| names.qualified(server, name).unwrap()).collect();
        assert_eq!(shown, expected);
    }

    // req: GW-02
    #[test]
    fn an_ordinary_name_is_server_and_tool() {
        check(
            &[("docs", "search"), ("my-db", "run_query"), ("a", "")],
            &["docs__search", "my-db__run_query", "a__"],
        );
        check(&[("docs", "search"), ("docs", "search")], &["docs__search", "docs__search"]);
    }

    // req: GW-02
    #[test]
    fn what_does_not_fit_gets_a_hash_that_never_changes() {
        check(
            &[("docs", "search.all"), ("docs", "search all")],
            &["docs__search_all_jq8qrm9ere", "docs__search_all_v8lgd6vsqv"],
        );
        let long = "x".repeat(100);
        let x = &long[..50];
        check(&[("s", &long)], &[&format!("s__{x}_8sd815upc9")]);
        check(&[("s", &long[..62])], &[&format!("s__{x}_1ic1b50a8n")]);
        check(&[("s", &long[..61])], &[&format!("s__{}", &long[..61])]);
    }

    // req: GW-02
    #[test]
    fn of_two_that_clash_the_first_by_server_keeps_its_name() {
        check(&[("a__b", "c"), ("a", "b__c")], &["a__b__c_5b74dp1uok", "a__b__c"]);
        check(&[("a__b", "c")], &["a__b__c"]);
    }

    // req: GW-02
    #[test]
    fn a_name_made_to_look_like_a_hashed_one_is_a_clash_like_any_other() {
        for (name, keeps_its_name) in [("a.b", true), ("a~b", false)] {
            let shown = QualifiedNames::from_pairs([("s", name)]).qualified("s", name).unwrap().to_owned();
            let forged = shown.strip_prefix("s__").unwrap();
            let names = QualifiedNames::from_pairs([("s", forged), ("s", name)]);
            assert_eq!(names.qualified("s", name) == Some(&shown), keeps_its_name);
            assert_eq!(names.qualified("s", forged) == Some(&shown), !keeps_its_name);
        }
    }

    #[test]
    fn what_is_not_listed_is_not_found() {
        let names = QualifiedNames::from_pairs([("a", "b")]);
        assert_eq!(names.original("a__c"), None);
        assert_eq!(names.qualified("a", "c"), None);
        assert_eq!(names.qualified("b", "b"), None);
    }

    /// Words of few letters, which collide, and arbitrary text.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof!["[ab_]{1,5}", "[a_.é]{0,80}", ".{0,4}"]
    }

    fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
        prop::collection::vec((word(), word()), 0..12)
    }

    fn names(pairs: &[(String, String)]) -> QualifiedNames {
        QualifiedNames::from_pairs(pairs.iter().map(|(server, name)| (&**server, &**name)))
    }

    proptest! {
        // req: GW-02
        #[test]
        fn every_name_is_legal_and_leads_back(pairs in pairs()) {
            let names = names(&pairs);
            for (server, name) in &pairs {
                let shown = names.qualified(server, name).unwrap();
                prop_assert!((1..=64).contains(&shown.len()));
                prop_assert!(shown.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c)));
                prop_assert_eq!(names.original(shown), Some((&**server, &**name)));
            }
        }

        // req: GW-02
        #[test]
        fn neither_order_nor_later_company_changes_a_name(mut pairs in pairs(), cut in 0usize..12) {
            pairs.sort();
            let all = names(&pairs);
            let first = &pairs[..cut.min(pairs.len())];
            let fewer = names(first);
            for (server, name) in first {
                prop_assert_eq!(fewer.qualified(server, name), all.qualified(server, name));
            }
            pairs.reverse();
            let turned = names(&pairs);
            for (server, name) in &pairs {
                prop_assert_eq!(turned.qualified(server, name), all.qualified(server, name));
            }
        }

        // req: GW-02
        #[test]
        fn company_changes_a_name_only_by_taking_it(pairs in pairs()) {
            let all = names(&pairs);
            for (server, name) in &pairs {
                let alone = QualifiedNames::from_pairs([(&**server, &**name)]);
                let alone = alone.qualified(server, name).unwrap();
                if all.qualified(server, name) != Some(alone) {
                    let taken = all.original(alone).unwrap();
                    prop_assert!(taken < (&**server, &**name));
                }
            }
        }
    }
}
