//! Secrets from files. Their type has no printable form, and errors never carry what a file holds.

use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// Why a secret could not be read. Never contains the secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file can't be read.
    #[error("secret file {} can't be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file holds nothing but blanks.
    #[error("secret file {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a secret that is the only content of a file. Blanks and line ends around it are not part of it: editors and
/// `kubectl create secret` leave them there.
pub fn read(path: &Path) -> Result<SecretString, SecretError> {
    let text = std::fs::read_to_string(path).map_err(|source| SecretError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(SecretError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(SecretString::from(secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_line_end_is_not_part_of_a_secret() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        std::fs::write(&path, "s3cret\n").expect("written");
        assert_eq!(read(&path).expect("read").expose_secret(), "s3cret");
    }

    #[test]
    fn an_empty_file_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("key");
        std::fs::write(&path, " \n").expect("written");
        assert!(
            read(&path)
                .expect_err("empty")
                .to_string()
                .contains("key is empty")
        );
    }

    #[test]
    fn a_secret_has_no_printable_form() {
        let secret = SecretString::from("s3cret".to_owned());
        assert!(!format!("{secret:?}").contains("s3cret"));
    }
}
