//! Finds definitions that are reached from themselves by names alone.

use super::types::{Alternative, Definition};

/// Returns true for each definition on a circle of names. Each name is followed twice (Kosaraju's algorithm).
pub(super) fn on_circles(definitions: &[Definition]) -> Vec<bool> {
    let names: Vec<Vec<usize>> = definitions.iter().map(names_of).collect();
    let mut users = vec![Vec::new(); names.len()];
    for (index, names) in names.iter().enumerate() {
        names.iter().for_each(|name| users[*name].push(index));
    }
    let mut seen = vec![false; names.len()];
    let mut finished = Vec::with_capacity(names.len());
    for start in 0..names.len() {
        visit(start, &names, &mut seen, &mut finished);
    }
    let mut seen = vec![false; names.len()];
    let mut is_circular = vec![false; names.len()];
    for start in finished.into_iter().rev() {
        let mut circle = Vec::new();
        visit(start, &users, &mut seen, &mut circle);
        if circle.len() > 1 || names[start].contains(&start) {
            circle.into_iter().for_each(|index| is_circular[index] = true);
        }
    }
    is_circular
}

fn names_of(definition: &Definition) -> Vec<usize> {
    let name = |alternative: &Alternative| match alternative {
        Alternative::Named(index) => Some(*index),
        _ => None,
    };
    definition.value.alternatives.iter().filter_map(name).collect()
}

/// Adds what is reached from `start` and was not seen, each after what it leads to.
fn visit(start: usize, edges: &[Vec<usize>], seen: &mut [bool], finished: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut path = vec![(start, 0)];
    while let Some((index, next)) = path.last_mut() {
        match edges[*index].get(*next) {
            Some(target) => {
                *next += 1;
                if !std::mem::replace(&mut seen[*target], true) {
                    path.push((*target, 0));
                }
            }
            None => {
                finished.push(*index);
                path.pop();
            }
        }
    }
}
