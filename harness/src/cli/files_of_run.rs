//! The folders that a run makes before it is known that there is anything to run.

use std::io;
use std::path::{Path, PathBuf};

/// The folders of the driver and of the logs, in a run's folder. Dropping it removes those that it made, unless they are kept.
pub struct FilesOfRun(Vec<PathBuf>);

impl FilesOfRun {
    /// Makes the folder of logs; the driver's is made by what unpacks it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn made_in(folder: &Path) -> io::Result<Self> {
        let ours = ["driver", "logs"].map(|name| folder.join(name));
        let made = Self(ours.into_iter().filter(|path| !path.exists()).collect());
        std::fs::create_dir_all(folder.join("logs"))?;
        Ok(made)
    }

    /// Keeps the folders: there is a run that they belong to.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for FilesOfRun {
    fn drop(&mut self) {
        for path in &self.0 {
            // What cannot be removed is in the run's own folder.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [driver, logs] = ["driver", "logs"].map(|name| folder.path().join(name));
        std::fs::create_dir(&driver).unwrap();
        drop(FilesOfRun::made_in(folder.path()).unwrap());
        assert!(driver.exists() && !logs.exists());
        let mut files = FilesOfRun::made_in(folder.path()).unwrap();
        files.keep();
        drop(files);
        assert!(logs.exists());
    }
}
