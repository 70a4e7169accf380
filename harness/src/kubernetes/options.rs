//! The options for Pods in `--launcher-options`.

/// The default image, a name that the user replaces.
const IMAGE: &str = "allranks";
/// The default size of `/dev/shm`.
const SHM: &str = "8Gi";

/// The options for Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOptions {
    /// The image, which has allranks in its PATH and a Python with torch: `image=`.
    pub image: String,
    /// The namespace: `namespace=`; `None` for that of the user's context.
    pub namespace: Option<String>,
    /// The size of `/dev/shm`, as Kubernetes writes it: `shm=`.
    pub shm: String,
    /// Devices of each Pod, a resource and a number: `devices=nvidia.com/gpu:8`. `None` for no devices.
    pub devices: Option<(String, u32)>,
}

impl PodOptions {
    /// Parses options such as `image=registry.example/allranks:1`.
    ///
    /// # Errors
    /// An option is unknown; the text names it.
    pub fn read(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            image: IMAGE.to_owned(),
            namespace: None,
            shm: SHM.to_owned(),
            devices: None,
        };
        for word in words {
            match word.split_once('=') {
                Some(("image", image)) if !image.is_empty() => image.clone_into(&mut options.image),
                Some(("namespace", name)) if !name.is_empty() => {
                    options.namespace = Some(name.to_owned());
                }
                Some(("shm", size)) if !size.is_empty() => size.clone_into(&mut options.shm),
                Some(("devices", what)) => {
                    let parts = what.rsplit_once(':');
                    let parts = parts.and_then(|(name, count)| Some((name, count.parse().ok()?)));
                    let (name, count) = parts.ok_or_else(|| unknown(word))?;
                    options.devices = Some((name.to_owned(), count));
                }
                _ => return Err(unknown(word)),
            }
        }
        Ok(options)
    }
}

fn unknown(word: &str) -> String {
    format!(
        "`{word}` is not an option for Pods; they are image=NAME, namespace=NAME, shm=SIZE and devices=RESOURCE:COUNT"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_unknown_ones_refused() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            PodOptions::read(&words)
        };
        let all = read("image=r.example/a:1 namespace=n shm=1Gi devices=nvidia.com/gpu:8").unwrap();
        assert_eq!(all.image, "r.example/a:1");
        assert_eq!(all.namespace.as_deref(), Some("n"));
        assert_eq!(all.shm, "1Gi");
        assert_eq!(all.devices, Some(("nvidia.com/gpu".to_owned(), 8)));
        assert_eq!(read("").unwrap().shm, SHM);
        for wrong in ["--image=a", "image=", "devices=gpu", "gpus=8", "image"] {
            assert!(read(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
