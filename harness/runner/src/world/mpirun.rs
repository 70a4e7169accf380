//! Which `mpirun` this machine has: the two families take different options.

use std::io;
use std::process::{Command, Stdio};

/// A family of `mpirun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mpirun {
    /// Open MPI and what is built from it. It does not pass the environment on by itself, and binds ranks to cores.
    OpenMpi,
    /// Hydra: MPICH and what is built from it, as Intel MPI and Cray MPICH. It passes the environment on.
    Hydra,
}

impl Mpirun {
    /// Returns the family of the `mpirun` in the search path, and the line by which it was told.
    ///
    /// # Errors
    /// There is none that can be run, or it is of another family.
    pub fn installed() -> io::Result<(Self, String)> {
        let said = Command::new("mpirun")
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                let hint = "load the module of your MPI";
                io::Error::new(
                    error.kind(),
                    format!("mpirun cannot be run ({error}); hint: {hint}"),
                )
            })?;
        Self::of(&String::from_utf8_lossy(&said.stdout)).map_err(io::Error::other)
    }

    /// Returns the family that prints `version` for `mpirun --version`, and the first line of that.
    ///
    /// # Errors
    /// It is of neither family.
    fn of(version: &str) -> Result<(Self, String), String> {
        let first = version.lines().find(|line| !line.trim().is_empty());
        let first = first.unwrap_or_default().trim().to_owned();
        let has = |mark: &str| version.contains(mark);
        if has("Open MPI") || has("OpenRTE") {
            Ok((Self::OpenMpi, first))
        } else if has("HYDRA") || has("Intel(R) MPI") {
            Ok((Self::Hydra, first))
        } else {
            Err(format!(
                "`mpirun --version` says `{first}`, which is neither Open MPI nor of MPICH's family"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_tells_the_family() {
        let of = |version: &str| Mpirun::of(version).map(|(family, _)| family);
        assert_eq!(of("mpirun (Open MPI) 4.1.4\n").unwrap(), Mpirun::OpenMpi);
        assert_eq!(of("HYDRA build details:\n").unwrap(), Mpirun::Hydra);
        assert_eq!(
            of("Intel(R) MPI Library for Linux* OS, Version 2021.11\n").unwrap(),
            Mpirun::Hydra
        );
        assert!(
            of("a script of mine")
                .unwrap_err()
                .contains("a script of mine")
        );
    }
}
