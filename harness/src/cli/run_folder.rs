//! Makes the folder for the results of a run.

use std::io;
use std::path::{Path, PathBuf};

use super::Failure;
use allranks_report::jsonl::FILE_NAME;

/// Makes the folder for a run's results: the requested one, or a new one below `target/allranks`.
///
/// # Errors
/// The folder holds the results of another run, or cannot be made.
pub fn make_run_folder(requested: Option<&Path>) -> Result<PathBuf, Failure> {
    let cannot = |folder: &Path, error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot make the folder {}: {error}", folder.display()),
        )
    };
    if let Some(folder) = requested {
        if folder.join(FILE_NAME).exists() {
            return Err(Failure::Usage(
                format!("{} holds the results of another run", folder.display()),
                "name another folder with --out; results are never overwritten".to_owned(),
            ));
        }
        std::fs::create_dir_all(folder).map_err(|error| cannot(folder, error))?;
        return Ok(folder.to_owned());
    }
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let parent = Path::new("target/allranks");
    std::fs::create_dir_all(parent).map_err(|error| cannot(parent, error))?;
    let stamp = stamp(now);
    // Another run may have begun in the same second.
    let names = std::iter::once(stamp.clone()).chain((2..).map(|n| format!("{stamp}-{n}")));
    for name in names {
        let folder = parent.join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(&folder, error).into()),
        }
    }
    unreachable!("there are names without end")
}

/// Returns a time in seconds since the Unix epoch as `20261120-081530`, in UTC.
fn stamp(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Howard Hinnant's civil_from_days: days since 1970-01-01 to year, month, day of the Gregorian calendar.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_date() {
        assert_eq!(stamp(0), "19700101-000000");
        assert_eq!(stamp(951_782_399), "20000228-235959");
        assert_eq!(stamp(951_782_400), "20000229-000000");
        assert_eq!(stamp(1_795_161_600), "20261120-080000");
    }
}
