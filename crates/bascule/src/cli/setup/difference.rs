//! Shows the difference of two texts as lines with `-` and `+`.

use crate::cli::terminal::sanitize_line;
use crate::redaction::SecretForms;

/// Unchanged lines around a change.
const CONTEXT: usize = 2;
/// Beyond this many pairs of lines the middle is shown as replaced.
const MAX_PAIRS: usize = 4_000_000;

/// Returns the changed lines with some lines around them. Secrets and control characters are hidden.
pub(crate) fn difference(old: &str, new: &str, secrets: &SecretForms) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let marked = compare(&old, &new);
    let is_near = |at: usize| {
        let near = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(marked.len());
        marked[near].iter().any(|(mark, _)| *mark != ' ')
    };
    let (mut lines, mut is_cut) = (Vec::new(), false);
    for (at, (mark, line)) in marked.iter().enumerate() {
        if !is_near(at) {
            is_cut = true;
            continue;
        }
        if is_cut && !lines.is_empty() {
            lines.push("  …".to_owned());
        }
        is_cut = false;
        let mut line = line.replace('\t', "    ");
        secrets.hide(&mut line);
        lines.push(format!("{mark} {}", sanitize_line(&line)));
    }
    lines
}

/// Marks each line: ` ` in both texts, `-` in the old one, `+` in the new one.
fn compare<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<(char, &'t str)> {
    let same = |(one, other): &(&&str, &&str)| one == other;
    let start = old.iter().zip(new).take_while(same).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(same).count();
    let (old_middle, new_middle) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let mut marked: Vec<(char, &str)> = old[..start].iter().map(|line| (' ', *line)).collect();
    marked.extend(compare_middle(old_middle, new_middle));
    marked.extend(old[old.len() - end..].iter().map(|line| (' ', *line)));
    marked
}

fn compare_middle<'t>(old: &[&'t str], new: &[&'t str]) -> Vec<(char, &'t str)> {
    if old.len().saturating_mul(new.len()) > MAX_PAIRS {
        let removed = old.iter().map(|line| ('-', *line));
        return removed.chain(new.iter().map(|line| ('+', *line))).collect();
    }
    // The length of the longest common part of the rest of both texts, for each pair of positions.
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = match old[i] == new[j] {
                true => common[(i + 1) * width + j + 1] + 1,
                false => common[(i + 1) * width + j].max(common[i * width + j + 1]),
            };
        }
    }
    let (mut marked, mut i, mut j) = (Vec::new(), 0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            marked.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            marked.push(('-', old[i]));
            i += 1;
        } else {
            marked.push(('+', new[j]));
            j += 1;
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        assert_eq!(difference(old, new, &SecretForms::new(["hunter22"].into_iter())), expected);
    }

    // req: US-04
    #[test]
    fn shows_changed_lines_with_their_neighbours() {
        check("a\nb\nc\nd\ne\nf", "a\nb\nc\nx\nd\ne\nf", &["  b", "  c", "+ x", "  d", "  e"]);
        check(
            "a\nb\nc\nd\ne\nf\ng",
            "A\nb\nc\nd\ne\nf\nG",
            &["- a", "+ A", "  b", "  c", "  …", "  e", "  f", "- g", "+ G"],
        );
        check("", "a\n", &["+ a"]);
        check("a\r\n", "a\r\n", &[]);
    }

    // req: US-04
    #[test]
    fn hides_secrets_and_control_characters() {
        check("", "\"hunter22\"\t\u{1b}[2J", &["+ \"***\"    \u{fffd}[2J"]);
    }
}
