//! Finds the symbolic links on the way to a file.

use std::path::{Component, Path, PathBuf};

/// Returns the links that the kernel follows to resolve a path, each by its own real path.
pub(super) fn crossed_links(path: &Path) -> Vec<PathBuf> {
    /// The kernel gives up earlier.
    const MAX_LINKS: usize = 64;
    let (mut links, mut real) = (Vec::new(), PathBuf::from("/"));
    let mut rest: Vec<PathBuf> = components(path);
    while let Some(next) = rest.pop() {
        if next == Path::new("..") {
            real.pop();
            continue;
        }
        let candidate = real.join(&next);
        match std::fs::read_link(&candidate) {
            Ok(target) if links.len() < MAX_LINKS => {
                links.push(candidate);
                if target.is_absolute() {
                    real = PathBuf::from("/");
                }
                rest.extend(components(&target));
            }
            _ => real = candidate,
        }
    }
    links
}

/// The names in a path, last one first.
fn components(path: &Path) -> Vec<PathBuf> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        _ => None,
    });
    names.rev().collect()
}
