//! A pod's volumes as folders. A process of this machine sees no mount, so paths in its arguments and variables are
//! rewritten to where the folders are.
//!
//! Files of ConfigMaps, Secrets and tokens appear behind one link that is swapped, as a kubelet does it: a reader sees
//! all old files or all new ones.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{
        ConfigMap, Container, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, Volume, VolumeProjection,
    },
};
use kube::{Api, Client, api::PostParams};

use super::environment::field_of;
use crate::place::NODE_ADDRESS;

/// The shortest that the API server grants.
const TOKEN_SECONDS: i64 = 3600;
/// Where clients look for their token in a pod.
pub(crate) const CREDENTIALS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

type Files = BTreeMap<String, Vec<u8>>;

/// Fills the volumes of one pod.
pub(crate) struct Volumes<'a> {
    pub client: &'a Client,
    pub pod: &'a Pod,
    pub ip: &'a str,
    /// The pod's own.
    pub folder: &'a Path,
}

impl Volumes<'_> {
    /// Brings every volume up to date.
    ///
    /// # Errors
    /// When something referred to is missing and not optional; the text is for the pod's status.
    pub(crate) async fn fill(&self) -> Result<(), String> {
        for volume in self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let place = self.folder.join("volumes").join(&volume.name);
            fs::create_dir_all(&place).map_err(|error| error.to_string())?;
            if let Some(files) = self.files(volume).await.map_err(|error| format!("volume {}: {error}", volume.name))? {
                swap(&place, &files).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// The files of a volume; `None` if its folder is the process' own to write.
    async fn files(&self, volume: &Volume) -> Result<Option<Files>, String> {
        if let Some(source) = &volume.config_map {
            return self.config_map(&source.name, source.items.as_deref(), source.optional).await.map(Some);
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            return self.secret(name, source.items.as_deref(), source.optional).await.map(Some);
        }
        if let Some(source) = &volume.downward_api {
            return self.fields(source.items.iter().flatten()).map(Some);
        }
        if let Some(source) = &volume.projected {
            let mut files = Files::new();
            for source in source.sources.iter().flatten() {
                files.extend(self.projected(source).await?);
            }
            return Ok(Some(files));
        }
        Ok(None)
    }

    async fn projected(&self, source: &VolumeProjection) -> Result<Files, String> {
        if let Some(source) = &source.config_map {
            return self.config_map(&source.name, source.items.as_deref(), source.optional).await;
        }
        if let Some(source) = &source.secret {
            return self.secret(&source.name, source.items.as_deref(), source.optional).await;
        }
        if let Some(source) = &source.downward_api {
            return self.fields(source.items.iter().flatten());
        }
        match &source.service_account_token {
            None => Ok(Files::new()),
            Some(source) => {
                let token = self.token(source.audience.clone().into_iter().collect()).await?;
                Ok(Files::from([(source.path.clone(), token.into_bytes())]))
            }
        }
    }

    /// A token of the pod's service account, bound to the pod.
    ///
    /// # Errors
    /// When the API server gives none.
    pub(crate) async fn token(&self, audiences: Vec<String>) -> Result<String, String> {
        let metadata = &self.pod.metadata;
        let account = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let bound = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
        };
        let spec =
            TokenRequestSpec { audiences, bound_object_ref: Some(bound), expiration_seconds: Some(TOKEN_SECONDS) };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), self.namespace());
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let status = answer.map_err(|error| error.to_string())?.status;
        Ok(status.ok_or("the API server gave no token")?.token)
    }

    async fn config_map(
        &self,
        name: &str,
        items: Option<&[KeyToPath]>,
        optional: Option<bool>,
    ) -> Result<Files, String> {
        let found = Api::<ConfigMap>::namespaced(self.client.clone(), self.namespace()).get_opt(name).await;
        let Some(map) = found.map_err(|error| error.to_string())? else {
            return absent("configmap", name, optional);
        };
        let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
        let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0));
        chosen(text.chain(binary).collect(), items, optional)
    }

    async fn secret(&self, name: &str, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Result<Files, String> {
        let found = Api::<Secret>::namespaced(self.client.clone(), self.namespace()).get_opt(name).await;
        let Some(secret) = found.map_err(|error| error.to_string())? else {
            return absent("secret", name, optional);
        };
        let data = secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        chosen(data, items, optional)
    }

    fn fields<'a>(&self, items: impl Iterator<Item = &'a DownwardAPIVolumeFile>) -> Result<Files, String> {
        let mut files = Files::new();
        for item in items {
            let Some(field) = &item.field_ref else { continue };
            let value = field_of(self.pod, &field.field_path, self.ip, &NODE_ADDRESS.to_string())?;
            files.insert(item.path.clone(), value.into_bytes());
        }
        Ok(files)
    }

    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn absent(kind: &str, name: &str, optional: Option<bool>) -> Result<Files, String> {
    if optional == Some(true) { Ok(Files::new()) } else { Err(format!("{kind} \"{name}\" not found")) }
}

/// All keys as files of their names, or those asked for under the paths asked for.
fn chosen(mut all: Files, items: Option<&[KeyToPath]>, optional: Option<bool>) -> Result<Files, String> {
    let Some(items) = items else { return Ok(all) };
    let mut files = Files::new();
    for item in items {
        match all.remove(&item.key) {
            Some(value) => drop(files.insert(item.path.clone(), value)),
            None if optional == Some(true) => {}
            None => return Err(format!("references non-existent config key: {}", item.key)),
        }
    }
    Ok(files)
}

/// Puts `files` in force behind one link, unless they are already.
fn swap(place: &Path, files: &Files) -> std::io::Result<()> {
    let link = place.join("..data");
    let same = |path: &Path| files.iter().all(|(name, bytes)| fs::read(path.join(name)).is_ok_and(|is| is == *bytes));
    let current = fs::read_link(&link).ok().map(|target| place.join(target));
    if current.as_ref().is_some_and(|path| same(path) && count(path) == files.len()) {
        return Ok(());
    }
    let edition = (0_u32..).map(|number| format!("..{number}")).find(|name| !place.join(name).exists());
    let edition = edition.expect("there are more numbers than editions");
    for (name, bytes) in files {
        let path = place.join(&edition).join(name);
        fs::create_dir_all(path.parent().expect("a file is in a folder"))?;
        fs::write(path, bytes)?;
    }
    fs::create_dir_all(place.join(&edition))?;
    let unfinished = place.join("..unfinished");
    symlink(&edition, &unfinished)?;
    fs::rename(unfinished, &link)?;
    for name in files.keys() {
        let first = name.split('/').next().unwrap_or(name);
        // It points through the link above, so it stays right.
        let _ = symlink(Path::new("..data").join(first), place.join(first));
    }
    // Links of files that are no more, and the edition before.
    for entry in fs::read_dir(place)?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("..") && !entry.path().exists() {
            fs::remove_file(entry.path())?;
        }
    }
    current.map_or(Ok(()), fs::remove_dir_all)
}

/// Files below a folder.
fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 }).sum()
}

/// Where a container's paths lead.
pub(crate) struct Mounts {
    /// Longest first.
    pairs: Vec<(String, PathBuf)>,
}

impl Mounts {
    /// Of a container of the pod whose folder this is.
    pub(crate) fn of(pod: &Pod, container: &Container, folder: &Path) -> Self {
        let volumes: Vec<&Volume> = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).collect();
        let mounted = container.volume_mounts.iter().flatten().map(|mount| {
            let volume = volumes.iter().find(|volume| volume.name == mount.name);
            let host = volume.and_then(|volume| volume.host_path.as_ref()).map(|host| PathBuf::from(&host.path));
            let base = host.unwrap_or_else(|| folder.join("volumes").join(&mount.name));
            let path = mount.sub_path.as_deref().map_or_else(|| base.clone(), |sub| base.join(sub));
            (mount.mount_path.trim_end_matches('/').to_owned(), path)
        });
        let mut pairs: Vec<_> = mounted.filter(|(path, _)| !path.is_empty()).collect();
        pairs.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self { pairs }
    }

    /// Where a path of the container is, if a volume is mounted there.
    pub(crate) fn find(&self, mount_path: &str) -> Option<&Path> {
        self.pairs.iter().find(|(path, _)| path == mount_path).map(|(_, host)| host.as_path())
    }

    /// `text` with every mounted path in it replaced by where it leads.
    pub(crate) fn rewritten(&self, text: &str) -> String {
        let mut result = String::new();
        let mut rest = text;
        let mut before = None;
        'text: while let Some(next) = rest.chars().next() {
            if next == '/' && !before.is_some_and(in_path) {
                for (path, host) in &self.pairs {
                    let Some(after) = rest.strip_prefix(path.as_str()) else { continue };
                    if after.chars().next().is_none_or(|next| next == '/' || !in_path(next)) {
                        result.push_str(&host.to_string_lossy());
                        rest = after;
                        before = path.chars().last();
                        continue 'text;
                    }
                }
            }
            result.push(next);
            rest = &rest[next.len_utf8()..];
            before = Some(next);
        }
        result
    }
}

fn in_path(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '-' | '_' | '.' | '/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rewritten_where_they_are_whole() {
        let pairs = [("/etc/tls/ca", "/p/v/ca"), ("/etc/tls", "/p/v/tls")];
        let mounts = Mounts { pairs: pairs.map(|(path, host)| (path.to_owned(), PathBuf::from(host))).to_vec() };
        for (text, expected) in [
            ("/etc/tls", "/p/v/tls"),
            ("--cert=/etc/tls/tls.crt", "--cert=/p/v/tls/tls.crt"),
            ("/etc/tls/ca/x:/etc/tls/y", "/p/v/ca/x:/p/v/tls/y"),
            ("/etc/tlsx", "/etc/tlsx"),
            ("/host/etc/tls", "/host/etc/tls"),
            ("cat /etc/tls; echo", "cat /p/v/tls; echo"),
        ] {
            assert_eq!(mounts.rewritten(text), expected, "{text}");
        }
    }

    #[test]
    fn files_are_swapped_whole_and_old_ones_go() {
        let place = tempfile::tempdir().unwrap();
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs.iter().map(|&(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect()
        };
        swap(place.path(), &files(&[("a", "1"), ("sub/b", "2")])).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("sub/b")).unwrap(), "2");
        let first = fs::read_link(place.path().join("..data")).unwrap();
        swap(place.path(), &files(&[("a", "1"), ("sub/b", "2")])).unwrap();
        assert_eq!(fs::read_link(place.path().join("..data")).unwrap(), first, "nothing changed");
        swap(place.path(), &files(&[("a", "3")])).unwrap();
        assert_eq!(fs::read_to_string(place.path().join("a")).unwrap(), "3");
        assert!(!place.path().join("sub").exists() && fs::symlink_metadata(place.path().join("sub")).is_err());
        assert!(!place.path().join(first).exists(), "the edition before is gone");
    }
}
