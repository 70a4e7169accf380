//! Removes the folders of a run that ends before it has anything to run.

use std::io;
use std::path::{Path, PathBuf};

/// The folders of driver and logs below a run's folder. Dropping the value removes those that did not exist before, unless
/// [`keep`](Self::keep) was called.
pub struct FilesOfRun(Vec<PathBuf>);

impl FilesOfRun {
    /// Makes the folder of logs. The driver's folder is made when the driver is unpacked.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn made_in(folder: &Path) -> io::Result<Self> {
        let ours = ["driver", "logs"].map(|name| folder.join(name));
        let made = Self(ours.into_iter().filter(|path| !path.exists()).collect());
        std::fs::create_dir_all(folder.join("logs"))?;
        Ok(made)
    }

    /// Keeps the folders, because the run has begun.
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
