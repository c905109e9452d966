//! The body of an answer: whole, bounded, and in plain bytes.

use std::io::Read;

use bytes::{Bytes, BytesMut};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

use super::Cause;

/// Reads all of `body`, at most `bytes_max`. Most pages come in a few pieces; one that comes in one is not copied.
pub(super) async fn collect(mut body: Incoming, bytes_max: usize) -> Result<Bytes, Cause> {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(Cause::TooLarge);
    }
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| Cause::Protocol)?.into_data() else { continue };
        if first.len() + all.len() + piece.len() > bytes_max {
            return Err(Cause::TooLarge);
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        if all.is_empty() {
            all.reserve(announced.max(2 * first.len()));
            all.extend_from_slice(&first);
            first = Bytes::new();
        }
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Undoes the content coding, which we did not ask for, but some proxies in front of engines apply it all the same.
pub(super) fn decode(headers: &HeaderMap, body: Bytes, bytes_max: usize) -> Result<Bytes, Cause> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    let mut coding = None;
    while let Some(name) = codings.next().map(<[u8]>::trim_ascii) {
        match name {
            b"" => {}
            name if name.eq_ignore_ascii_case(b"identity") => {}
            // Coded twice: nobody does that in earnest.
            _ if coding.is_some() => return Err(Cause::Encoding),
            name => coding = Some(name),
        }
    }
    match coding {
        None => Ok(body),
        Some(name) if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => {
            inflate(MultiGzDecoder::new(&body[..]), bytes_max)
        }
        // "deflate" means zlib, but servers that send bare deflate have always been among us.
        Some(name) if name.eq_ignore_ascii_case(b"deflate") => match inflate(ZlibDecoder::new(&body[..]), bytes_max) {
            Err(Cause::Encoding) => inflate(DeflateDecoder::new(&body[..]), bytes_max),
            other => other,
        },
        Some(_) => Err(Cause::Encoding),
    }
}

fn inflate(decoder: impl Read, bytes_max: usize) -> Result<Bytes, Cause> {
    let mut plain = Vec::new();
    let bound = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(bound).read_to_end(&mut plain).map_err(|_| Cause::Encoding)?;
    if plain.len() > bytes_max { Err(Cause::TooLarge) } else { Ok(plain.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    const TEXT: &[u8] = b"vllm:num_requests_waiting 3\n";

    fn headers(codings: &[&str]) -> HeaderMap {
        codings.iter().map(|coding| (CONTENT_ENCODING, coding.parse().unwrap())).collect()
    }

    fn gzip(plain: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn codings() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
        bare.write_all(TEXT).unwrap();
        let zlib = Bytes::from(zlib.finish().unwrap());
        let bare = Bytes::from(bare.finish().unwrap());
        for (codings, body) in [
            (&[][..], Bytes::from_static(TEXT)),
            (&["identity"], Bytes::from_static(TEXT)),
            (&["GZIP"], gzip(TEXT)),
            (&["identity, x-gzip"], gzip(TEXT)),
            (&["deflate"], zlib),
            (&["deflate"], bare),
        ] {
            assert_eq!(decode(&headers(codings), body, 100).unwrap(), TEXT, "{codings:?}");
        }
    }

    #[test]
    fn what_cannot_be_decoded() {
        for (codings, body) in [
            (&["br"][..], Bytes::from_static(TEXT)),
            (&["gzip", "gzip"], gzip(&gzip(TEXT))),
            (&["gzip"], Bytes::from_static(TEXT)),
            (&["gzip"], gzip(TEXT).slice(..20)),
            (&["deflate"], Bytes::from_static(b"\xff\xff\xff")),
        ] {
            assert_eq!(decode(&headers(codings), body, 100), Err(Cause::Encoding), "{codings:?}");
        }
    }

    #[test]
    fn a_small_page_that_inflates_without_end_is_too_large() {
        let bomb = gzip(&vec![b'#'; 1 << 20]);
        assert!(bomb.len() < 4096);
        assert_eq!(decode(&headers(&["gzip"]), bomb.clone(), 1 << 19), Err(Cause::TooLarge));
        assert_eq!(decode(&headers(&["gzip"]), bomb, 1 << 20).unwrap().len(), 1 << 20);
    }
}
