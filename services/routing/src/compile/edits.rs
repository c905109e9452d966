//! Filters as they are written, made into plain data.
//!
//! What cannot be done is never left out in silence: a filter may be what keeps a request from harm.

use api::cluster::{HeaderFilter, HeaderValue, PathModifier, RouteFilter};

use super::Fault;
use crate::filter::{Filters, HeaderEdits, PathEdit, Redirect, Rewrite};

/// Headers that belong to one connection or frame a message: changing them would make two readers disagree on where it ends.
const UNTOUCHABLE: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// All filters of a list, and what is wrong with the first that cannot be applied.
pub(super) fn filters(written: &[RouteFilter]) -> (Filters, Option<Fault>) {
    let mut filters = Filters::default();
    for filter in written {
        if let Err(fault) = add(&mut filters, filter) {
            return (filters, Some(fault));
        }
    }
    let clash = filters.redirect.is_some() && filters.rewrite.is_some();
    let fault = clash.then(|| Fault {
        reason: "IncompatibleFilters",
        message: "URLRewrite and RequestRedirect exclude each other".to_owned(),
    });
    (filters, fault)
}

fn add(filters: &mut Filters, written: &RouteFilter) -> Result<(), Fault> {
    match written.kind.as_str() {
        "RequestHeaderModifier" => {
            let edits = written.request_header_modifier.as_ref().ok_or_else(|| empty(written))?;
            filters.request_headers.append(headers(edits)?);
        }
        "ResponseHeaderModifier" => {
            let edits = written.response_header_modifier.as_ref().ok_or_else(|| empty(written))?;
            filters.response_headers.append(headers(edits)?);
        }
        "RequestRedirect" => {
            filters.redirect = Some(redirect(written.request_redirect.as_ref().ok_or_else(|| empty(written))?)?);
        }
        "URLRewrite" => {
            let rewrite = written.url_rewrite.as_ref().ok_or_else(|| empty(written))?;
            let path = rewrite.path.as_ref().map(path).transpose()?;
            filters.rewrite = Some(Rewrite { hostname: rewrite.hostname.clone(), path });
        }
        other => return Err(Fault::unsupported(format!("filters of type `{other}` are not supported"))),
    }
    Ok(())
}

fn empty(written: &RouteFilter) -> Fault {
    Fault::unsupported(format!("a filter of type `{}` does not say what to do", written.kind))
}

fn headers(written: &HeaderFilter) -> Result<HeaderEdits, Fault> {
    let pairs = |list: &[HeaderValue]| list.iter().map(pair).collect::<Result<Vec<_>, Fault>>();
    let remove = written.remove.iter().map(|it| name(it)).collect::<Result<_, _>>()?;
    Ok(HeaderEdits { set: pairs(&written.set)?, add: pairs(&written.add)?, remove })
}

fn pair(written: &HeaderValue) -> Result<(String, String), Fault> {
    let is_legal = written.value.bytes().all(|it| it == b'\t' || (it >= b' ' && it != 0x7f));
    if !is_legal {
        return Err(Fault::unsupported(format!(
            "the value of header `{}` has characters no header may have",
            written.name
        )));
    }
    Ok((name(&written.name)?, written.value.clone()))
}

fn name(written: &str) -> Result<String, Fault> {
    let name = written.to_ascii_lowercase();
    let is_token =
        !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&it));
    if !is_token {
        return Err(Fault::unsupported(format!("`{written}` is no name of a header")));
    }
    if UNTOUCHABLE.contains(&name.as_str()) {
        return Err(Fault::unsupported(format!("header `{name}` cannot be changed by a filter")));
    }
    Ok(name)
}

fn redirect(written: &api::cluster::Redirect) -> Result<Redirect, Fault> {
    let status = written.status_code.unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(Fault::unsupported(format!("redirects with status {status} are not supported")));
    }
    let scheme = written.scheme.as_ref().map(|it| it.to_ascii_lowercase());
    if let Some(scheme) = scheme.as_deref().filter(|it| !matches!(*it, "http" | "https")) {
        return Err(Fault::unsupported(format!("redirects to scheme `{scheme}` are not supported")));
    }
    let path = written.path.as_ref().map(path).transpose()?;
    Ok(Redirect { scheme, hostname: written.hostname.clone(), path, port: written.port, status })
}

fn path(written: &PathModifier) -> Result<PathEdit, Fault> {
    let edit = match (written.kind.as_str(), &written.replace_full_path, &written.replace_prefix_match) {
        ("ReplaceFullPath", Some(text), _) => PathEdit::Full(text.clone()),
        ("ReplacePrefixMatch", _, Some(text)) => PathEdit::Prefix(text.clone()),
        (kind, ..) => return Err(Fault::unsupported(format!("a path cannot be changed by `{kind}`"))),
    };
    let (PathEdit::Full(text) | PathEdit::Prefix(text)) = &edit;
    let is_path = text.bytes().all(|it| it.is_ascii_graphic() && it != b'#' && it != b'?');
    if is_path { Ok(edit) } else { Err(Fault::unsupported(format!("`{text}` is no path"))) }
}
