//! Request bodies that come compressed are decoded, within the body limit: the gateway has to read them, and the endpoint
//! gets what the gateway read. Decoding starts when the compressed body is complete and goes on piece by piece, so that
//! a bomb meets the limit early and a core can do something else in between.

use std::{
    collections::VecDeque,
    io::{self, Read},
};

use brotli_decompressor::Decompressor;
use bytes::{Buf, Bytes};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header::CONTENT_ENCODING};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// What the gateway decodes, as named in its 415 and its documentation.
pub const ACCEPTED: &str = "gzip, deflate, br, zstd, identity";
/// Most bytes handed on at once: between two pieces a core can do something else.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Largest zstd window that is decoded (8 MiB, what RFC 8878 asks every decoder to support).
const ZSTD_WINDOW_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How a stream begins, in its low seven bits, that wants a window of up to 1 GiB: RFC 7932 leaves it invalid, but the
/// decoder takes it, and would keep everything it decodes.
const BROTLI_LARGE_WINDOW: u8 = 0b001_0001;

/// A content coding of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950; raw RFC 1951, which some clients send under this name, is taken too.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// The header names a coding that is not decoded, or several.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("content-encoding `{0}` is not supported: send one of {ACCEPTED}")]
pub struct Unsupported(pub String);

/// The body is not what its coding says.
#[derive(Debug, thiserror::Error)]
#[error("the body is no valid {coding} data: {source}")]
pub struct Broken {
    coding: &'static str,
    source: io::Error,
}

impl Coding {
    /// Reads `Content-Encoding`.
    ///
    /// # Errors
    /// For any coding but one of [`ACCEPTED`], and for more than one.
    pub fn of(headers: &HeaderMap) -> Result<Self, Unsupported> {
        let mut found = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = value.to_str().map_err(|_| Unsupported(format!("{value:?}")))?;
            for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let coding = match name.to_ascii_lowercase().as_str() {
                    "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "br" => Self::Brotli,
                    "zstd" => Self::Zstd,
                    _ => return Err(Unsupported(text.to_owned())),
                };
                if found != Self::Identity {
                    return Err(Unsupported(text.to_owned()));
                }
                found = coding;
            }
        }
        Ok(found)
    }
}

/// Gives the decoded body in pieces of at most [`PIECE_BYTES_MAX`].
pub struct Decoder {
    coding: &'static str,
    source: Box<dyn Read + Send>,
}

impl Decoder {
    /// Decodes `body`, which arrived in these pieces.
    ///
    /// # Errors
    /// When not even the head of the data is of that coding.
    pub fn new(coding: Coding, body: Vec<Bytes>) -> Result<Self, Broken> {
        let pieces = Pieces(body.into());
        let (name, source): (_, Box<dyn Read + Send>) = match coding {
            Coding::Identity => ("identity", Box::new(pieces)),
            Coding::Gzip => ("gzip", Box::new(MultiGzDecoder::new(pieces))),
            // A zlib header's low four bits name method 8; the bits above are a window of at most 32 kB.
            Coding::Deflate if pieces.first().is_some_and(|byte| byte & 0x0f == 8 && byte >> 4 <= 7) => {
                ("deflate", Box::new(ZlibDecoder::new(pieces)))
            }
            Coding::Deflate => ("deflate", Box::new(DeflateDecoder::new(pieces))),
            Coding::Brotli if pieces.first().is_some_and(|byte| byte & 0x7f == BROTLI_LARGE_WINDOW) => {
                let text = "its window is larger than RFC 7932 allows";
                return Err(Broken { coding: "br", source: io::Error::new(io::ErrorKind::InvalidData, text) });
            }
            Coding::Brotli => ("br", Box::new(Decompressor::new(pieces, 4096))),
            Coding::Zstd => ("zstd", Box::new(Zstd::new(pieces))),
        };
        Ok(Self { coding: name, source })
    }

    /// The next piece; empty at the end.
    ///
    /// # Errors
    /// When the data is not of the coding or ends too early.
    pub fn next_piece(&mut self) -> Result<Bytes, Broken> {
        let mut piece = vec![0; PIECE_BYTES_MAX];
        let mut filled = 0;
        while filled < piece.len() {
            match self.source.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Broken { coding: self.coding, source }),
            }
        }
        piece.truncate(filled);
        // What is kept is what is paid for: a small body does not hold a large buffer until its answer ends.
        piece.shrink_to_fit();
        Ok(piece.into())
    }
}

/// A body in pieces, read as one.
struct Pieces(VecDeque<Bytes>);

impl Pieces {
    fn first(&self) -> Option<u8> {
        self.0.iter().find_map(|piece| piece.first().copied())
    }

    fn drop_empty(&mut self) {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.drop_empty();
        let Some(piece) = self.0.front_mut() else { return Ok(0) };
        let count = out.len().min(piece.len());
        piece.copy_to_slice(&mut out[..count]);
        Ok(count)
    }
}

/// Frame after frame; the library reads one.
struct Zstd {
    frame: Frame,
}

enum Frame {
    Between(Pieces),
    Within(Box<StreamingDecoder<Pieces, FrameDecoder>>),
    Failed,
}

impl Zstd {
    fn new(pieces: Pieces) -> Self {
        Self { frame: Frame::Between(pieces) }
    }

    /// Opens the next frame; `None` at the end of the body.
    fn open(mut pieces: Pieces) -> io::Result<Option<Box<StreamingDecoder<Pieces, FrameDecoder>>>> {
        pieces.drop_empty();
        if pieces.0.is_empty() {
            return Ok(None);
        }
        let window_bytes = zstd_window_bytes(&pieces).ok_or(io::ErrorKind::UnexpectedEof)?;
        if window_bytes > ZSTD_WINDOW_BYTES_MAX {
            let text = format!("its window of {window_bytes} bytes is over the {ZSTD_WINDOW_BYTES_MAX} decoded here");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        StreamingDecoder::new(pieces).map(|decoder| Some(Box::new(decoder))).map_err(io::Error::other)
    }
}

impl Read for Zstd {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            match std::mem::replace(&mut self.frame, Frame::Failed) {
                Frame::Between(pieces) => match Self::open(pieces)? {
                    Some(decoder) => self.frame = Frame::Within(decoder),
                    None => {
                        self.frame = Frame::Between(Pieces(VecDeque::new()));
                        return Ok(0);
                    }
                },
                Frame::Within(mut decoder) => match decoder.read(out)? {
                    0 => self.frame = Frame::Between(decoder.into_inner()),
                    count => {
                        self.frame = Frame::Within(decoder);
                        return Ok(count);
                    }
                },
                Frame::Failed => return Err(io::Error::other("an earlier frame was broken")),
            }
        }
    }
}

/// The window a frame's header asks for (RFC 8878, 3.1.1.1), before anything is set aside for it. `None` when the header
/// is cut short. Frames without a window descriptor ask for their content's size.
fn zstd_window_bytes(pieces: &Pieces) -> Option<u64> {
    let mut header = pieces.0.iter().flat_map(|piece| piece.iter().copied());
    let mut next = |count: usize| -> Option<u64> {
        (0..count).try_fold(0_u64, |value, place| Some(value | u64::from(header.next()?) << (8 * place)))
    };
    next(4)?;
    let descriptor = next(1)?;
    let single_segment = descriptor & 0x20 != 0;
    if !single_segment {
        let window = next(1)?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + (base / 8) * (window & 7));
    }
    next([0, 1, 2, 4][(descriptor & 3) as usize])?;
    match descriptor >> 6 {
        0 => next(1),
        1 => next(2).map(|size| size + 256),
        2 => next(4),
        _ => next(8),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use http::HeaderValue;

    use super::*;

    const TEXT: &[u8] = br#"{"model":"m1","messages":[{"role":"user","content":"hi"}]}"#;

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(coding: Coding, body: Vec<Bytes>) -> Result<Vec<u8>, Broken> {
        let mut decoder = Decoder::new(coding, body)?;
        let mut all = Vec::new();
        loop {
            let piece = decoder.next_piece()?;
            if piece.is_empty() {
                return Ok(all);
            }
            assert!(piece.len() <= PIECE_BYTES_MAX);
            all.extend_from_slice(&piece);
        }
    }

    fn bytewise(data: &[u8]) -> Vec<Bytes> {
        data.iter().map(|byte| Bytes::copy_from_slice(&[*byte])).collect()
    }

    #[test]
    fn a01_every_coding_gives_the_text_whatever_the_pieces() {
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT).unwrap();
        let mut raw = DeflateEncoder::new(Vec::new(), Compression::default());
        raw.write_all(TEXT).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(TEXT, ruzstd::encoding::CompressionLevel::Fastest);
        let table = [
            (Coding::Gzip, gzip(TEXT)),
            (Coding::Gzip, [gzip(&TEXT[..20]), gzip(&TEXT[20..])].concat()),
            (Coding::Deflate, zlib.finish().unwrap()),
            (Coding::Deflate, raw.finish().unwrap()),
            (Coding::Zstd, zstd.clone()),
            (Coding::Identity, TEXT.to_vec()),
        ];
        for (coding, data) in table {
            assert_eq!(decode(coding, bytewise(&data)).unwrap(), TEXT, "{coding:?}");
            assert_eq!(decode(coding, vec![data.into()]).unwrap(), TEXT, "{coding:?}");
        }
        assert_eq!(decode(Coding::Zstd, vec![zstd.clone().into(), zstd.into()]).unwrap(), [TEXT, TEXT].concat());
    }

    #[test]
    fn a01_brotli() {
        // Made with the reference encoder, Python's brotli 1.1, from the text below.
        let data = [
            27, 69, 0, 112, 156, 7, 118, 12, 153, 6, 75, 11, 56, 221, 139, 90, 100, 111, 11, 100, 161, 181, 181, 14,
            75, 87, 223, 138, 73, 3, 135, 156, 8, 220, 218, 146, 48, 129, 144, 107, 130, 21, 152, 28, 196, 6, 201, 88,
            158, 85, 104, 22, 185, 112, 196, 119,
        ];
        let text = br#"{"model":"m1","messages":[{"role":"user","content":"hi hi hi hi hi"}]}"#;
        assert_eq!(decode(Coding::Brotli, bytewise(&data)).unwrap(), text);
        // Last, empty meta-block alone is the empty text.
        assert_eq!(decode(Coding::Brotli, vec![Bytes::from_static(&[0x06])]).unwrap(), b"");
    }

    #[test]
    fn a_broken_or_cut_body_is_an_error_not_a_short_text() {
        let whole = gzip(TEXT);
        for cut in [1, 5, 12, whole.len() - 1] {
            assert!(decode(Coding::Gzip, vec![Bytes::copy_from_slice(&whole[..cut])]).is_err(), "{cut}");
        }
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd] {
            assert!(
                decode(coding, vec![Bytes::from_static(b"\xff\xff\xffnot compressed at all")]).is_err(),
                "{coding:?}"
            );
        }
    }

    #[test]
    fn a_zstd_frame_that_asks_for_a_huge_window_is_refused_before_memory_is_set_aside() {
        // Magic, no single segment, window descriptor of 2^(10+21) bytes.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3, 1, 0, 0];
        let error = decode(Coding::Zstd, vec![Bytes::copy_from_slice(&frame)]).unwrap_err();
        assert!(error.to_string().contains("window"), "{error}");
    }

    #[test]
    fn a_brotli_window_beyond_the_standard_is_refused() {
        // The marker, 30 bits of window, and a last, empty block: a whole stream for a decoder that knows the extension.
        let stream = [0x11, 0x1e | 0b11 << 6];
        let error = decode(Coding::Brotli, vec![Bytes::copy_from_slice(&stream)]).unwrap_err();
        assert!(error.to_string().contains("window"), "{error}");
    }

    #[test]
    fn a01_a_bomb_unfolds_in_pieces() {
        let bomb = gzip(&vec![0; 64 << 20]);
        assert!(bomb.len() < 100_000);
        let mut decoder = Decoder::new(Coding::Gzip, vec![bomb.into()]).unwrap();
        assert_eq!(decoder.next_piece().unwrap().len(), PIECE_BYTES_MAX);
    }

    #[test]
    fn which_codings_are_taken() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_ENCODING, HeaderValue::from_static(value));
            }
            Coding::of(&headers)
        };
        assert_eq!(of(&[]), Ok(Coding::Identity));
        assert_eq!(of(&["identity"]), Ok(Coding::Identity));
        assert_eq!(of(&["GZIP"]), Ok(Coding::Gzip));
        assert_eq!(of(&["x-gzip"]), Ok(Coding::Gzip));
        assert_eq!(of(&["identity, br"]), Ok(Coding::Brotli));
        assert!(of(&["compress"]).unwrap_err().to_string().contains(ACCEPTED));
        assert!(of(&["gzip, gzip"]).is_err());
        assert!(of(&["gzip", "br"]).is_err());
    }
}
