//! Predicts the next tool of a task from the tools called so far. Tools that were called already are left out of every ranking.

use crate::learned::{Learned, Source, folds};
use crate::{Duel, K, SHARES, Set, Task};

/// A task after some of its calls.
struct Question<'a> {
    task: &'a Task,
    called: Vec<&'a str>,
    next: &'a str,
}

/// The places of the right tools, 0 for the first.
type Places = Vec<Option<usize>>;

pub(crate) fn measure(set: &Set, training: &[&Task], measured: &[&Task]) {
    let (learned, questions) = (Learned::new(training), questions(measured));
    let pair = |question: &Question| {
        (question.called[question.called.len() - 1].to_owned(), question.next.to_owned())
    };
    let seen = questions.iter().filter(|question| learned.pairs.contains(&pair(question))).count();
    println!("  next tool: {} questions, {seen} with a pair that occurs in training", questions.len());
    let places = |rank: &dyn Fn(&Question) -> Vec<String>| -> Places {
        questions.iter().map(|question| place(question, &rank(question))).collect()
    };
    print("most popular", &places(&|_| learned.popular.iter().map(|(tool, _)| tool.clone()).collect()));
    print("most popular of the last server", &places(&|question| by_server(&learned, question)));
    let search = places(&|question| joint(set, &learned, question, Source::Graph, 0.0));
    print("search by intent", &search);
    print("graph", &places(&|question| by_graph(&learned, question)));
    let [control, graph] = [Source::Popularity, Source::Graph].map(|source| {
        let share = best_share(set, training, source);
        let places = places(&|question| joint(set, &learned, question, source, share));
        print(&format!("search + {share} {source:?}"), &places);
        places
    });
    compare("search + graph against search", &graph, &search);
    compare("search + graph against search + popularity", &graph, &control);
}

fn questions<'a>(tasks: &[&'a Task]) -> Vec<Question<'a>> {
    let of_task = |task: &&'a Task| {
        let (task, tools) = (*task, &task.tools);
        let question = |at: usize| {
            let called = tools[..at].iter().map(String::as_str).collect();
            Question { task, called, next: &tools[at] }
        };
        (1..tools.len()).map(question).collect::<Vec<_>>()
    };
    tasks.iter().flat_map(of_task).collect()
}

/// Chooses the share of a source within the training part.
fn best_share(set: &Set, training: &[&Task], source: Source) -> f64 {
    let folds = folds(training);
    let total = |share: f64| -> usize {
        let of_fold = |(learned, asked): &(Learned, Vec<&Task>)| {
            let of_question = |q: &Question| points(place(q, &joint(set, learned, q, source, share)));
            questions(asked).iter().map(of_question).sum::<usize>()
        };
        folds.iter().map(of_fold).sum()
    };
    // Of equal shares the smallest.
    SHARES.into_iter().rev().max_by_key(|share| total(*share)).unwrap()
}

/// One point among the first `K`, one more for the first place.
fn points(place: Option<usize>) -> usize {
    usize::from(place.is_some_and(|place| place < K)) + usize::from(place == Some(0))
}

fn place(question: &Question, ranked: &[String]) -> Option<usize> {
    let mut not_called = ranked.iter().filter(|tool| !question.called.contains(&tool.as_str()));
    not_called.position(|tool| tool == question.next)
}

fn by_graph(learned: &Learned, question: &Question) -> Vec<String> {
    let next = learned.graph.next_tools(question.called.iter().copied(), usize::MAX);
    next.into_iter().map(|tool| tool.tool).collect()
}

/// Ranks the tools of the last call's server by frequency, then all others.
fn by_server(learned: &Learned, question: &Question) -> Vec<String> {
    let server = |tool: &str| tool.split(':').next().unwrap().to_owned();
    let last = question.called.last().map(|tool| server(tool));
    let all = || learned.popular.iter().map(|(tool, _)| tool);
    let is_same = |tool: &&String| Some(server(tool)) == last;
    all().filter(is_same).chain(all().filter(|tool| !is_same(tool))).cloned().collect()
}

/// Ranks by the score of search, plus a share of a source.
fn joint(set: &Set, learned: &Learned, question: &Question, source: Source, share: f64) -> Vec<String> {
    let hints = learned.hints(source, &question.called);
    let mut scores = set.search(question.task);
    scores.iter_mut().for_each(|(tool, score)| *score += share * hints.get(*tool).copied().unwrap_or(0.0));
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores.into_iter().take(K + question.called.len()).map(|(tool, _)| tool.to_owned()).collect()
}

fn print(method: &str, places: &Places) {
    let hits = |k: usize| places.iter().flatten().filter(|place| **place < k).count();
    let share = |k: usize| hits(k) as f64 / places.len() as f64;
    println!("    {method:34} hit@1 {:.3}  hit@{K} {:.3}", share(1), share(K));
}

fn compare(name: &str, with: &Places, without: &Places) {
    for k in [1, K] {
        let mut duel = Duel::default();
        let hit = |place: &Option<usize>| f64::from(u8::from(place.is_some_and(|place| place < k)));
        with.iter().zip(without).for_each(|(with, without)| duel.add(hit(with), hit(without)));
        println!("    {name}, hit@{k}: {duel}");
    }
}
