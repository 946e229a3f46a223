//! Measures if the graph helps: the prediction of the next tool, and search, with and without it (`make eval-graph`).
//!
//! The folder `EVAL_DATA` has the sets. Each set of tasks is split in two; the graph, the baselines and the share of the boost
//! learn from one part and are measured on the other.

#![allow(clippy::print_stdout, reason = "the measurements are printed")]
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod learned;
mod next_tool;
mod search;
mod sets;

use std::path::Path;

use sets::{Set, Task};

/// Results that a caller sees.
const K: usize = 5;
/// The shares of another source in a joint score, of which the training part chooses one.
const SHARES: [f64; 8] = [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2];

/// A way to divide the tasks of a set.
#[derive(Debug, Clone, Copy)]
enum Split {
    /// The first half teaches, the second is measured.
    InTime,
    /// Every other task teaches. Tasks that stand together in the file resemble each other, so they are on both sides.
    Alternating,
}

impl Split {
    fn divide(self, tasks: &[Task]) -> (Vec<&Task>, Vec<&Task>) {
        let half = tasks.len() / 2;
        let is_training = |at: usize| match self {
            Self::InTime => at < half,
            Self::Alternating => at.is_multiple_of(2),
        };
        let part = |wanted: bool| {
            let numbered = tasks.iter().enumerate().filter(|(at, _)| is_training(*at) == wanted);
            numbered.map(|(_, task)| task).collect()
        };
        (part(true), part(false))
    }
}

/// The paired comparison of two methods on the same questions.
#[derive(Debug, Default, Clone, Copy)]
struct Duel {
    wins: usize,
    losses: usize,
}

impl Duel {
    fn add(&mut self, with: f64, without: f64) {
        self.wins += usize::from(with > without);
        self.losses += usize::from(with < without);
    }

    /// Tells if the wins exceed the losses by more than two standard deviations of a fair coin.
    fn is_won(self) -> bool {
        let (wins, losses) = (self.wins as f64, self.losses as f64);
        wins - losses > 2.0 * (wins + losses).sqrt()
    }
}

impl std::fmt::Display for Duel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.is_won() { "wins" } else { "does not win" };
        write!(f, "{} wins, {} losses: {verdict}", self.wins, self.losses)
    }
}

// req: TR-04
#[test]
fn graph_against_baselines() {
    let folder = std::env::var_os("EVAL_DATA").expect("`EVAL_DATA` names the folder of the sets");
    let folder = Path::new(&folder);
    let [multiple, seal] = ["metatool_multi", "sealtools"].map(|name| Set::external(folder, name));
    for set in [&Set::agent_tasks(), &multiple, &seal] {
        for split in [Split::InTime, Split::Alternating] {
            let (training, measured) = split.divide(&set.tasks);
            let steps = |tasks: &[&Task]| tasks.iter().map(|task| task.tools.len() - 1).sum::<usize>();
            println!(
                "\n{} {split:?}: {} training, {} measured tasks",
                set.name,
                training.len(),
                measured.len()
            );
            if steps(&training) > 0 && steps(&measured) > 0 {
                next_tool::measure(set, &training, &measured);
            }
            search::measure(set, (set, &training), &measured);
        }
    }
    let single = Set::external(folder, "metatool_single");
    println!("\nmetatool_single, graph of metatool_multi");
    search::measure(&single, (&multiple, &multiple.all()), &single.all());
}
