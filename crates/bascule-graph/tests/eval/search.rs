//! Compares search by intent with and without a boost of tools that the graph relates to the best hits.

use std::collections::HashMap;

use crate::learned::{Learned, Source, folds};
use crate::{Duel, K, SHARES, Set, Task};

/// The hits whose neighbours are boosted.
const HITS: usize = 3;

pub(crate) fn measure(set: &Set, (teacher, training): (&Set, &[&Task]), measured: &[&Task]) {
    let learned = Learned::new(training);
    let recalls = |source: Source, share: f64| -> Vec<f64> {
        measured.iter().map(|task| recall(set, &learned, task, source, share)).collect()
    };
    let plain = recalls(Source::Graph, 0.0);
    println!("  search: {} intents", measured.len());
    print("search by intent", &plain);
    let [control, graph] = [Source::Popularity, Source::Graph].map(|source| {
        let share = best_share(teacher, training, source);
        let recalls = recalls(source, share);
        print(&format!("search + {share} {source:?}"), &recalls);
        recalls
    });
    println!("    search + graph against search: {}", compare(&graph, &plain));
    println!("    search + graph against search + popularity: {}", compare(&graph, &control));
}

/// Chooses the share of a source within the training part.
fn best_share(set: &Set, training: &[&Task], source: Source) -> f64 {
    let folds = folds(training);
    let total = |share: f64| -> f64 {
        let of_fold = |(learned, asked): &(Learned, Vec<&Task>)| -> f64 {
            asked.iter().map(|task| recall(set, learned, task, source, share)).sum()
        };
        folds.iter().map(of_fold).sum()
    };
    // Of equal shares the smallest.
    let totals = SHARES.map(|share| (total(share), share));
    totals.into_iter().rev().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap().1
}

/// Returns the share of a task's tools that are among the first `K`.
fn recall(set: &Set, learned: &Learned, task: &Task, source: Source, share: f64) -> f64 {
    let mut scores = set.search(task);
    let boosts = boosts(learned, source, &scores[..HITS.min(scores.len())]);
    scores.iter_mut().for_each(|(tool, score)| *score += share * boosts.get(*tool).copied().unwrap_or(0.0));
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let first: Vec<&str> = scores.iter().take(K).map(|(tool, _)| *tool).collect();
    let found = task.tools.iter().filter(|tool| first.contains(&tool.as_str())).count();
    found as f64 / task.tools.len() as f64
}

/// Returns the scores of tools beside the best hits, by the score of the hit.
fn boosts(learned: &Learned, source: Source, hits: &[(&str, f64)]) -> HashMap<String, f64> {
    if source == Source::Popularity {
        return learned.hints(source, &[]);
    }
    let mut boosts = HashMap::new();
    for (hit, score) in hits {
        for (tool, hint) in learned.hints(source, &[hit]) {
            *boosts.entry(tool).or_default() += score * hint;
        }
    }
    boosts
}

fn print(method: &str, recalls: &[f64]) {
    println!("    {method:34} recall@{K} {:.3}", recalls.iter().sum::<f64>() / recalls.len() as f64);
}

fn compare(with: &[f64], without: &[f64]) -> Duel {
    let mut duel = Duel::default();
    with.iter().zip(without).for_each(|(with, without)| duel.add(*with, *without));
    duel
}
