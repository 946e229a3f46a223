//! Qualified names: makes the names of tools and prompts unique across servers, and looks them up.
//!
//! The tool `search` of the server `docs` has the qualified name `docs__search`. Clients and models accept at most 64
//! characters of `[A-Za-z0-9_-]`, so any other name is shortened, cleaned, and gets a hash of the original: `search.all`
//! becomes `docs__search_all_jq8qrm9ere`. A qualified name is looked up, never parsed: `a__b__c` may be `b__c` of `a` as
//! well as `c` of `a__b`.

use std::collections::{BTreeSet, HashMap};

const MAX_NAME_LENGTH: usize = 64;

/// Digits of five bits each.
const HASH_LENGTH: usize = 10;

/// The unique names or URIs of one listing: a two-way index of pairs of server and original, and their qualified forms.
#[derive(Debug, Clone, Default)]
pub struct QualifiedIndex {
    by_server: HashMap<String, HashMap<String, usize>>,
    by_qualified: HashMap<String, usize>,
    all: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    server: String,
    original: String,
    qualified: String,
}

impl QualifiedIndex {
    pub(crate) fn add(&mut self, server: &str, original: &str, qualified: String) {
        let number = self.all.len();
        self.by_server.entry(server.to_owned()).or_default().insert(original.to_owned(), number);
        self.by_qualified.insert(qualified.clone(), number);
        self.all.push(Entry { server: server.to_owned(), original: original.to_owned(), qualified });
    }

    pub fn qualified(&self, server: &str, original: &str) -> Option<&str> {
        let number = *self.by_server.get(server)?.get(original)?;
        Some(&self.all[number].qualified)
    }

    /// Returns the server and the original name or URI.
    pub fn original(&self, qualified: &str) -> Option<(&str, &str)> {
        let entry = &self.all[*self.by_qualified.get(qualified)?];
        Some((&entry.server, &entry.original))
    }
}

/// The qualified names that were given so far. A name stays with its owner: a server that lists the same name later gets
/// another one, and nobody gets the name of a tool that is gone.
#[derive(Debug, Default)]
pub struct QualifiedNames {
    /// Server → original → qualified name.
    by_server: HashMap<String, HashMap<String, String>>,
    /// Qualified name → server and original.
    owners: HashMap<String, (String, String)>,
}

/// The most names of one server that are kept. A server with more of them loses those that it no longer lists.
const MAX_KEPT_NAMES: usize = 10_000;

impl QualifiedNames {
    /// Indexes pairs of server and name. Duplicate pairs count once.
    ///
    /// A new name depends only on the server and the name, not on the rest of the listing or its order, unless its best form
    /// is taken. Of new names that would be equal, the first by server and then by name gets it, and the others get a
    /// hash of their own.
    pub fn index<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> QualifiedIndex {
        let pairs: BTreeSet<_> = pairs.into_iter().collect();
        let mut index = QualifiedIndex::default();
        for (server, name) in &pairs {
            index.add(server, name, self.qualify(server, name));
        }
        self.forget_surplus(&pairs);
        index
    }

    /// Returns the server and the original name that a qualified name was given to.
    pub fn owner(&self, qualified: &str) -> Option<(&str, &str)> {
        self.owners.get(qualified).map(|(server, name)| (server.as_str(), name.as_str()))
    }

    fn qualify(&mut self, server: &str, name: &str) -> String {
        if let Some(known) = self.by_server.get(server).and_then(|names| names.get(name)) {
            return known.clone();
        }
        let free = candidates(server, name).find(|text| !self.owners.contains_key(text));
        let qualified = free.expect("there are endless hashes");
        self.by_server.entry(server.to_owned()).or_default().insert(name.to_owned(), qualified.clone());
        self.owners.insert(qualified.clone(), (server.to_owned(), name.to_owned()));
        qualified
    }

    fn forget_surplus(&mut self, listed: &BTreeSet<(&str, &str)>) {
        for (server, names) in self.by_server.iter_mut().filter(|(_, names)| names.len() > MAX_KEPT_NAMES) {
            let surplus = names.extract_if(|name, _| !listed.contains(&(server.as_str(), name.as_str())));
            surplus.for_each(|(_, qualified)| drop(self.owners.remove(&qualified)));
        }
    }
}

/// Returns the possible qualified names, best first: without a hash if it is legal, then with different hashes.
fn candidates(server: &str, name: &str) -> impl Iterator<Item = String> {
    let plain = format!("{server}__{name}");
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let head = plain.chars().map(|c| if is_legal(c) { c } else { '_' });
    let head: String = head.take(MAX_NAME_LENGTH - HASH_LENGTH - 1).collect();
    let unchanged = (plain.len() <= MAX_NAME_LENGTH && plain.chars().all(is_legal)).then_some(plain);
    let pair = [server.as_bytes(), name.as_bytes()].join(&SEPARATOR);
    unchanged.into_iter().chain((0u64..).map(move |attempt| format!("{head}_{}", hash(&pair, attempt))))
}

/// A byte that does not occur in UTF-8.
const SEPARATOR: u8 = 0xff;

/// FNV-1a with a final mix, because its last bytes hardly change the upper bits. It must never change: permissions and
/// documents refer to the names.
fn hash(pair: &[u8], attempt: u64) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in pair.iter().chain(&[SEPARATOR]).chain(&attempt.to_le_bytes()) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^= hash >> 29;
    let digit =
        |place: usize| char::from(b"0123456789abcdefghijklmnopqrstuv"[(hash >> (place * 5)) as usize % 32]);
    (0..HASH_LENGTH).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> QualifiedIndex {
        QualifiedNames::default().index(pairs)
    }

    fn check(pairs: &[(&str, &str)], expected: &[&str]) {
        let names = index(pairs.iter().copied());
        let qualified: Vec<_> =
            pairs.iter().map(|(server, name)| names.qualified(server, name).unwrap()).collect();
        assert_eq!(qualified, expected);
    }

    // req: GW-02
    #[test]
    fn joins_server_and_tool() {
        check(
            &[("docs", "search"), ("my-db", "run_query"), ("a", "")],
            &["docs__search", "my-db__run_query", "a__"],
        );
        check(&[("docs", "search"), ("docs", "search")], &["docs__search", "docs__search"]);
    }

    // req: GW-02
    #[test]
    fn adds_a_stable_hash_to_illegal_names() {
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
    fn resolves_clashes_by_server() {
        check(&[("a__b", "c"), ("a", "b__c")], &["a__b__c_5b74dp1uok", "a__b__c"]);
        check(&[("a__b", "c")], &["a__b__c"]);
    }

    // req: GW-02
    #[test]
    fn name_stays_with_its_owner() {
        let mut names = QualifiedNames::default();
        assert_eq!(names.index([("a__b", "c")]).qualified("a__b", "c"), Some("a__b__c"));
        let both = names.index([("a", "b__c"), ("a__b", "c")]);
        assert_eq!(both.qualified("a__b", "c"), Some("a__b__c"));
        let late = both.qualified("a", "b__c").unwrap().to_owned();
        assert_eq!(both.original(&late), Some(("a", "b__c")));
        // Also while the owner is gone.
        let alone = names.index([("a", "b__c")]);
        assert_eq!(alone.qualified("a", "b__c"), Some(late.as_str()));
        assert_eq!(alone.original("a__b__c"), None);
        assert_eq!(names.owner("a__b__c"), Some(("a__b", "c")));
        assert_eq!(names.owner("a__b__d"), None);
    }

    // req: GW-02
    #[test]
    fn forgets_names_of_a_server_with_too_many() {
        let mut names = QualifiedNames::default();
        names.index([("a__b", "c"), ("a", "kept")]);
        for list in 0..3 {
            let many: Vec<String> = (0..MAX_KEPT_NAMES).map(|tool| format!("t{list}_{tool}")).collect();
            names.index(many.iter().map(|name| ("many", name.as_str())));
        }
        assert_eq!(names.by_server["many"].len(), MAX_KEPT_NAMES);
        assert_eq!(names.owners.len(), MAX_KEPT_NAMES + 2);
        assert_eq!(names.owner("a__b__c"), Some(("a__b", "c")));
    }

    // req: GW-02
    #[test]
    fn resolves_clashes_with_forged_hashes() {
        for (name, keeps_its_name) in [("a.b", true), ("a~b", false)] {
            let qualified = index([("s", name)]).qualified("s", name).unwrap().to_owned();
            let forged = qualified.strip_prefix("s__").unwrap();
            let names = index([("s", forged), ("s", name)]);
            assert_eq!(names.qualified("s", name) == Some(&qualified), keeps_its_name);
            assert_eq!(names.qualified("s", forged) == Some(&qualified), !keeps_its_name);
        }
    }

    #[test]
    fn finds_only_listed_names() {
        let names = index([("a", "b")]);
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

    fn names(pairs: &[(String, String)]) -> QualifiedIndex {
        index(pairs.iter().map(|(server, name)| (&**server, &**name)))
    }

    proptest! {
        // req: GW-02
        #[test]
        fn makes_legal_names_that_lead_back(pairs in pairs()) {
            let names = names(&pairs);
            for (server, name) in &pairs {
                let qualified = names.qualified(server, name).unwrap();
                prop_assert!((1..=64).contains(&qualified.len()));
                prop_assert!(qualified.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c)));
                prop_assert_eq!(names.original(qualified), Some((&**server, &**name)));
            }
        }

        // req: GW-02
        #[test]
        fn ignores_order_and_later_names(mut pairs in pairs(), cut in 0usize..12) {
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
        fn changes_a_name_only_on_a_clash(pairs in pairs()) {
            let all = names(&pairs);
            for (server, name) in &pairs {
                let alone = index([(&**server, &**name)]);
                let alone = alone.qualified(server, name).unwrap();
                if all.qualified(server, name) != Some(alone) {
                    let taken = all.original(alone).unwrap();
                    prop_assert!(taken < (&**server, &**name));
                }
            }
        }
    }
}
