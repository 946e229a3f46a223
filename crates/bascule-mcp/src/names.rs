//! Tells the names of many servers apart where they are shown together, and finds them back.
//!
//! A tool (or prompt) `search` of the server `docs` is shown as `docs__search`. Clients and models want at most 64
//! of `[A-Za-z0-9_-]`, so what does not fit that is cut and cleaned, and gets a hash of what it was: `search.all` is
//! `docs__search_all_jq8qrm9ere`. A shown name is looked up, never taken apart: `a__b__c` may be `b__c` of
//! `a` as well as `c` of `a__b`.

use std::collections::{BTreeSet, HashMap};

/// The longest name that is shown.
pub const LONGEST_NAME: usize = 64;

/// How long a hash is: fifty bits.
const HASH: usize = 10;

/// The names of one listing and how they are shown.
///
/// What a name is shown as depends on the name and its server alone, whatever else is listed and in whatever
/// order. Only where two would be shown alike, the first by server and then by name keeps it, and the others get
/// a hash: their own, so they keep that one too for as long as they need it.
#[derive(Debug, Clone, Default)]
pub struct QualifiedNames(QualifiedIndex);

impl QualifiedNames {
    /// Takes the pairs of server and name. A pair that is listed twice is one.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut shown = QualifiedIndex::default();
        for (server, name) in pairs.into_iter().collect::<BTreeSet<_>>() {
            let fits = spellings(server, name).find(|text| shown.original(text).is_none());
            shown.add(server, name, fits.expect("there is no end of hashes"));
        }
        Self(shown)
    }

    /// What a server's name is shown as.
    pub fn qualified(&self, server: &str, name: &str) -> Option<&str> {
        self.0.qualified(server, name)
    }

    /// The server and the name it gave to what is shown like this.
    pub fn original(&self, shown: &str) -> Option<(&str, &str)> {
        self.0.original(shown)
    }
}

/// What a name could be shown as, best first: as it is if it may, then with one hash after the other.
fn spellings(server: &str, name: &str) -> impl Iterator<Item = String> {
    let plain = format!("{server}__{name}");
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let head = plain.chars().map(|c| if legal(c) { c } else { '_' });
    let head: String = head.take(LONGEST_NAME - HASH - 1).collect();
    let as_it_is = (plain.len() <= LONGEST_NAME && plain.chars().all(legal)).then_some(plain);
    let pair = [server.as_bytes(), name.as_bytes()].join(&NEVER_IN_TEXT);
    as_it_is.into_iter().chain((0u64..).map(move |attempt| format!("{head}_{}", hash(&pair, attempt))))
}

/// A byte that UTF-8 does not have.
const NEVER_IN_TEXT: u8 = 0xff;

/// FNV-1a, stirred once more at the end because its last bytes hardly move the upper bits. It must never change:
/// what people allowed or wrote down under a name has to stay that.
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

/// Pairs of server and original, and what each is shown as. No two are shown alike.
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

    /// Few letters, so that there are clashes; and anything.
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
