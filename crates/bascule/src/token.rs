//! The token of a configuration, which HTTP clients present. It is generated once and kept for the next starts.

use std::fs;
use std::io;
use std::path::Path;

use bascule_model::Secret;
use tracing::warn;

use crate::control::config_hash;
use crate::hexadecimal::hexadecimal;
use crate::private_file;

/// Hexadecimal digits of a token.
const LENGTH: u64 = 64;

/// Reads the token of a configuration file, or generates it.
pub(crate) fn load_or_create(config: &Path) -> io::Result<Secret<String>> {
    let folder = private_file::folder("tokens")?;
    let path = folder.join(format!("{:016x}", config_hash(&config.canonicalize()?)));
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(&path),
        // Others may know it, or have written it.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            warn!("{error}: a new token replaces it");
            fs::remove_file(&path)?;
            create(&path)
        }
        token => token,
    }
}

/// Returns 256 random bits as text.
pub(crate) fn generate() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| io::Error::other(format!("no random source available: {error}")))?;
    Ok(hexadecimal(&bytes))
}

/// Refuses a token that others may know or have written.
fn read(path: &Path) -> io::Result<Secret<String>> {
    let token = private_file::read(path, LENGTH)?;
    match token.len() as u64 == LENGTH {
        true => Ok(Secret::new(token)),
        false => {
            let message = format!("the token `{}` is damaged", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        }
    }
}

/// Two bridges may start at once: the first one that links its file wins, and the other one reads it.
fn create(path: &Path) -> io::Result<Secret<String>> {
    let own = private_file::write_beside(path, &generate()?)?;
    let linked = fs::hard_link(&own, path);
    fs::remove_file(&own)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => read(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    // req: GW-07
    #[test]
    fn keeps_the_first_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let first = create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(create(&path).unwrap().reveal(), first.reveal());
        assert_eq!(read(&path).unwrap().reveal(), first.reveal());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    // req: GW-07
    #[test]
    fn refuses_token_that_others_may_know() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("other users"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("damaged"));
    }
}
