"""``Decoder``: decodes compressed chunks that a program holds into memory of its choice, without a Zarr array."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._docstrings import documented
from cuzarr._memory.foreign import device_buffer, is_on_device, wrap_host
from cuzarr._memory.streams import stream_handle
from cuzarr.codecs.direct import as_json, current_stream
from cuzarr.errors import CuzarrError, InvalidArgumentError

if TYPE_CHECKING:
    from cuzarr.typing import ArrayLike, CodecLike, Frames, Rows, Stream


def _frame(value: Any) -> _core.NdBuffer:
    if isinstance(value, _core.NdBuffer):
        return value
    if is_on_device(value):
        return device_buffer(value)
    host = value if isinstance(value, np.ndarray) else np.frombuffer(value, "u1")
    flat = np.ascontiguousarray(host).reshape(-1)
    return wrap_host(flat.view("u1"))


def _output(value: Any) -> _core.NdBuffer:
    if is_on_device(value):
        return device_buffer(value)
    if not isinstance(value, np.ndarray) or not value.dtype.isnative or not value.flags.writeable:
        raise InvalidArgumentError(f"out holds {type(value).__name__}, expected writable arrays of native elements")
    return wrap_host(value)


def _is_slab(frames: Any) -> bool:
    """Whether ``frames`` is one buffer of all frames with their offsets and sizes, not a tuple of three frames."""
    if not isinstance(frames, tuple) or len(frames) != 3 or isinstance(frames[1], bytes | bytearray | memoryview):
        return False
    return not str(getattr(frames[1], "dtype", "")).endswith("uint8")


def _ranges(offsets: Any, sizes: Any) -> list[tuple[int, int]]:
    ranges = [(int(offset), int(size)) for offset, size in zip(offsets, sizes, strict=False)]
    if len(offsets) != len(sizes):
        raise InvalidArgumentError(f"got {len(offsets)} offsets and {len(sizes)} sizes")
    for number, (offset, size) in enumerate(ranges):
        if offset < 0 or size < 0 or offset + size > sys.maxsize:
            raise InvalidArgumentError(f"frame {number} of {size} bytes at byte {offset} is outside of any slab")
    return ranges


class Batch:
    """Frames (compressed chunks) that are ready to be decoded, once or several times: see :meth:`Decoder.prepare`.

    Parameters
    ----------
    batch, kept, outs
        Internal; use :meth:`Decoder.prepare`.

    Raises
    ------
    ChunkCorruptError
        From the list that :meth:`check` returns: one error for each damaged frame.

    Examples
    --------
    >>> import numpy as np, zlib
    >>> from cuzarr.codecs import Decoder
    >>> out = np.empty((1, 4), "u1")
    >>> batch = Decoder({"name": "zlib", "configuration": {"level": 1}}, device="cpu").prepare([zlib.compress(b"abcd")], out)
    >>> batch.run()
    >>> batch.check(), bytes(out[0])
    ([None], b'abcd')
    """

    def __init__(self, batch: _core.DecoderBatch, kept: tuple[Any, Any], outs: Sequence[Any]) -> None:
        self._batch = batch
        self._kept = kept  # keeps frames and outputs alive while work may be running
        self._outs = outs

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def scratch_bytes(self) -> int:
        """Device memory in bytes that decoding this batch needs in addition to frames and outputs."""
        return self._batch.scratch_bytes

    @property
    def via_host(self) -> str | None:
        """The reason why threads of the host decode frames for a GPU; ``None`` if the device itself decodes."""
        return self._batch.via_host

    def run(self, stream: Stream = None) -> None:
        """Start to decode the frames on a CUDA stream, without waiting for the end. Only frames that the host decodes are done when this
        returns.

        Parameters
        ----------
        stream : CuPy or PyTorch stream, object with ``__cuda_stream__``, or int, optional
            The stream for the work; by default the current stream of the library of the output arrays.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> codec = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
        >>> chunks = np.arange(8, dtype="uint8").reshape(2, 4)
        >>> out, frames = np.empty_like(chunks), cuzarr.codecs.Encoder(codec, device="cpu").encode(chunks)
        >>> cuzarr.codecs.Decoder(codec, device="cpu").prepare(frames, out).run()
        >>> out[1]
        array([4, 5, 6, 7], dtype=uint8)
        """
        if stream is None and self._outs and is_on_device(self._outs[0]):
            stream = current_stream(self._outs[0])
        self._batch.run(stream_handle(stream) or 0, stream)

    def check(self) -> list[CuzarrError | None]:
        """Wait until the last call of ``run`` has decoded the frames, and return for each frame its error, or ``None``.

        Returns
        -------
        list of CuzarrError or None
            One error for each frame, in their order; ``None`` for a frame that was decoded.

        Raises
        ------
        InvalidArgumentError
            There was no run since the last check.

        Examples
        --------
        >>> import cuzarr, numpy as np
        >>> batch = cuzarr.codecs.Decoder("zstd", device="cpu").prepare([b"damage"], np.empty((1, 4), "uint8"))
        >>> batch.run()
        >>> [error.kind for error in batch.check()]
        ['ChunkCorrupt']
        """
        return self._batch.check()


@documented(
    """
    >>> import cuzarr, numpy as np
    >>> codec = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
    >>> chunks = np.arange(8, dtype="uint8").reshape(2, 4)
    >>> frames = cuzarr.codecs.Encoder(codec, device="cpu").encode(chunks)
    """,
)
class Decoder:
    """A decoder for frames (compressed chunks) of a codec or a chain of codecs, without a Zarr array. On a GPU, all frames are decoded at once.

    Parameters
    ----------
    codecs : dict, Codec, numcodecs codec, or a sequence of them
        One codec, or a chain in the order of encoding: ``{"name": "zstd", "configuration": {}}``. In addition to the codecs of
        arrays there are ``deflate``, a stream without the header of zlib or gzip, and ``lz4_raw``, an LZ4 block without a
        leading size.
    device : str, optional
        The device that decodes; by default the device that arrays are read to (``cuzarr.config``).

    Raises
    ------
    UnknownCodecError
        There is no such codec.
    DeviceUnavailableError
        There is no such device, or it cannot be used.

    >>> import numpy as np, zlib
    >>> frames = [zlib.compress(bytes([n]) * 1000) for n in range(3)]
    >>> out = np.empty((3, 1000), "u1")
    >>> Decoder({"name": "zlib", "configuration": {"level": 1}}, device="cpu").decode(frames, out)
    >>> out[:, -1].tolist()
    [0, 1, 2]
    """

    def __init__(self, codecs: CodecLike | Sequence[CodecLike], *, device: str | None = None) -> None:
        self.device: str = str(config.get("device")) if device is None else device
        self._codecs = as_json(codecs)
        self._decoder = _core.Decoder(self._codecs, self.device)

    def prepare(
        self, frames: Frames, out: list[ArrayLike] | tuple[ArrayLike, ...] | Rows, *, scratch_limit: int | None = None
    ) -> Batch:
        """Read the headers of frames (compressed chunks), and prepare the frames to be decoded. Nothing is decoded yet.

        Parameters
        ----------
        frames : sequence of arrays or bytes, or tuple (slab, offsets, sizes)
            The encoded frames. Arrays are on the decoder's device, and have DLPack or the CUDA array interface; bytes are on the
            host. A tuple gives ranges of bytes in one array or in one ``bytes``. The bytes must be complete at the time of this call, and
            must not change until they are decoded.
        out : sequence of arrays, or an array
            The output of each frame; its shape and type must be those of the decoded frame. In a single array, row ``i`` is the
            output of frame ``i``. Rows that follow each other in memory, and begin at a multiple of 16 bytes, are decoded in place.
            For other rows, the batch decodes to its own memory and copies.
        scratch_limit : int, optional
            Limit on the device memory of decoders, in bytes. To stay below it, frames are decoded in parts, unless one frame needs more.

        Raises
        ------
        InvalidArgumentError, MemorySpaceError
            Frames and outputs do not match, or are not on the decoder's device.

        >>> batch = cuzarr.codecs.Decoder(codec, device="cpu").prepare(frames, np.empty_like(chunks))
        >>> batch.run()
        >>> batch.check()
        [None, None]
        """
        outs = list(out) if isinstance(out, list | tuple) else [out[row] for row in range(out.shape[0])]
        targets = [_output(target) for target in outs]
        if _is_slab(frames):
            slab, offsets, sizes = frames
            batch = self._decoder.prepare_slab(_frame(slab), _ranges(offsets, sizes), targets, scratch_limit)
        else:
            batch = self._decoder.prepare([_frame(frame) for frame in frames], targets, scratch_limit)
        return Batch(batch, (frames, out), outs)

    def decode(self, frames: Frames, out: list[ArrayLike] | tuple[ArrayLike, ...] | Rows, *, stream: Stream = None) -> None:
        """Decode frames and wait: :meth:`prepare`, :meth:`Batch.run` and :meth:`Batch.check` in one call.

        Parameters
        ----------
        frames, out
            As for :meth:`prepare`.
        stream : optional
            As for :meth:`Batch.run`.

        Raises
        ------
        CuzarrError
            The error of the first frame that could not be decoded. The others are decoded.

        >>> out = np.empty_like(chunks)
        >>> cuzarr.codecs.Decoder(codec, device="cpu").decode(frames, out)
        >>> bool((out == chunks).all())
        True
        """
        batch = self.prepare(frames, out)
        batch.run(stream)
        for error in batch.check():
            if error is not None:
                raise error

    def __repr__(self) -> str:
        return f"Decoder({self._codecs}, device={self.device!r})"


__all__ = ["Batch", "Decoder"]
