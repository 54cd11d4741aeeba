"""``Encoder``: encodes chunks that a program holds, on the device where they are, without a Zarr array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cuzarr import _core
from cuzarr._config import config
from cuzarr._docstrings import documented
from cuzarr._memory.convert import result_array
from cuzarr._memory.foreign import device_buffer, is_on_device, wrap_host
from cuzarr._memory.streams import stream_handle
from cuzarr.codecs.direct import as_json, current_stream
from cuzarr.errors import CuzarrError, InvalidArgumentError

if TYPE_CHECKING:
    from cuzarr.typing import CodecLike, Frame, MemoryArray, Rows, Stream


def _chunk(value: Any) -> _core.NdBuffer:
    if isinstance(value, _core.NdBuffer):
        return value
    if is_on_device(value):
        return device_buffer(value)
    if isinstance(value, bytes | bytearray | memoryview):
        value = np.frombuffer(value, "u1")
    if not isinstance(value, np.ndarray) or not value.dtype.isnative:
        raise InvalidArgumentError(f"chunks hold {type(value).__name__}, expected arrays of native elements, or bytes")
    return wrap_host(value)


@documented(
    """
    >>> import cuzarr, numpy as np
    >>> batch = cuzarr.codecs.Encoder("zstd", device="cpu").prepare(np.zeros((2, 1000), "uint8"))
    >>> batch.run()
    """,
)
class EncodingBatch:
    """Chunks that are ready to be encoded, once or several times: see :meth:`Encoder.prepare`.

    Parameters
    ----------
    batch, kept, chunks
        Internal; use :meth:`Encoder.prepare`.

    Raises
    ------
    EncodeFailedError
        From :meth:`frames`: a chunk could not be encoded.

    >>> import numpy as np
    >>> from cuzarr.codecs import Encoder
    >>> batch = Encoder({"name": "gzip", "configuration": {"level": 1}}, device="cpu").prepare(np.zeros((2, 100), "u1"))
    >>> batch.run()
    >>> len(batch.frames())
    2
    """

    def __init__(self, batch: _core.EncoderBatch, kept: object, chunks: Sequence[Any]) -> None:
        self._batch = batch
        self._kept = kept  # keeps the chunks alive while work may be running
        self._chunks = chunks

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def scratch_bytes(self) -> int:
        """Device memory in bytes that encoding this batch needs in addition to chunks and frames."""
        return self._batch.scratch_bytes

    @property
    def via_host(self) -> str | None:
        """The reason why the host runs one of the codecs; ``None`` if the device runs all of them."""
        return self._batch.via_host

    def run(self, stream: Stream = None) -> None:
        """Start to encode the chunks on a CUDA stream, without waiting for the end. Only chunks that the host encodes are done when this
        returns.

        The run reads the chunks in the order of the stream, so they may be changed between runs.

        Parameters
        ----------
        stream : CuPy or PyTorch stream, object with ``__cuda_stream__``, or int, optional
            The stream of the work; by default the current stream of the library of the chunk arrays.

        >>> import cuzarr, numpy as np
        >>> chunks = np.zeros((2, 1000), "uint8")
        >>> batch = cuzarr.codecs.Encoder("zstd", device="cpu").prepare(chunks)
        >>> batch.run()
        >>> chunks[:] = 7  # the next frames
        >>> batch.run()
        >>> len(batch.frames())
        2
        """
        if stream is None and self._chunks and is_on_device(self._chunks[0]):
            stream = current_stream(self._chunks[0])
        self._batch.run(stream_handle(stream) or 0, stream)

    def check(self) -> list[CuzarrError | None]:
        """Wait until the last call of ``run`` has encoded the chunks, and return for each chunk its error, or ``None``.

        Returns
        -------
        list of CuzarrError or None
            One error for each chunk, in their order; ``None`` for a chunk that was encoded.

        Raises
        ------
        InvalidArgumentError
            There was no run since the last check.

        >>> batch.check()
        [None, None]
        """
        return self._batch.check()

    def frames(self) -> list[MemoryArray]:
        """Wait until the last call of ``run`` has encoded the chunks, and return the frames (encoded chunks) in the same order.

        Returns
        -------
        list of arrays
            One-dimensional arrays of ``uint8`` on the encoder's device: NumPy's on the CPU; on a GPU CuPy's if it is
            installed, else :class:`~cuzarr.DeviceArray`. They keep the memory of all frames of the run alive. A later run does not
            change them.

        Raises
        ------
        CuzarrError
            The error of the first chunk that could not be encoded.
        InvalidArgumentError
            There was no run.

        >>> [frame.size < 100 for frame in batch.frames()]
        [True, True]
        """
        return [result_array(frame, np.dtype("u1")) for frame in self._batch.frames()]


@documented(
    """
    >>> import cuzarr, numpy as np
    >>> codec = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}
    """,
)
class Encoder:
    """An encoder that compresses chunks with a codec or a chain of codecs, without a Zarr array. On a GPU, all chunks are encoded at once.

    Codecs with kernels run on the device of the chunks. For other codecs, chunks are downloaded, encoded by the host, and
    uploaded; :attr:`EncodingBatch.via_host` gives the reason.

    Parameters
    ----------
    codecs : dict, Codec, numcodecs codec, or a sequence of them
        One codec, or a chain in the order of encoding: ``{"name": "zstd", "configuration": {"level": 3}}``.
    device : str, optional
        The device of chunks and frames; by default the device that arrays are read to (``cuzarr.config``).
    strict : bool, optional
        Whether it is an error if the host must run a codec for chunks on a GPU; by default the setting in ``cuzarr.config``.

    Raises
    ------
    UnknownCodecError
        There is no such codec.
    FallbackRefusedError
        The host would encode, and ``strict`` forbids it.

    >>> import numpy as np, zlib
    >>> chunks = np.arange(3000, dtype="i4").reshape(3, 1000)
    >>> batch = Encoder({"name": "zlib", "configuration": {"level": 1}}, device="cpu").prepare(chunks)
    >>> batch.run()
    >>> [np.frombuffer(zlib.decompress(frame), "i4")[-1].item() for frame in batch.frames()]
    [999, 1999, 2999]
    """

    def __init__(self, codecs: CodecLike | Sequence[CodecLike], *, device: str | None = None, strict: bool | None = None) -> None:
        self.device: str = str(config.get("device")) if device is None else device
        self._codecs = as_json(codecs)
        strict = bool(config.get("strict")) if strict is None else strict
        self._encoder = _core.Encoder(self._codecs, self.device, strict)

    def prepare(self, chunks: list[Frame] | tuple[Frame, ...] | Rows, *, scratch_limit: int | None = None) -> EncodingBatch:
        """Prepare chunks to be encoded, once or several times. No work is submitted to the device yet.

        Parameters
        ----------
        chunks : sequence of arrays, or an array
            The chunks, of any shapes and types, on the encoder's device: anything with DLPack or the CUDA array interface;
            NumPy arrays or bytes for ``cpu``. In a single array, row ``i`` is chunk ``i``. Chunks of one shape that follow each
            other in memory, and begin at a multiple of 16 bytes, are encoded in place; others are copied first.
        scratch_limit : int, optional
            Limit on the device memory of a run in addition to chunks and frames, in bytes. To stay below it, chunks are encoded in parts,
            unless one chunk needs more.

        Raises
        ------
        MemorySpaceError
            A chunk is on another device.
        FallbackRefusedError
            The host would run a codec, and ``strict`` forbids it.

        >>> chunks = np.arange(8, dtype="uint8").reshape(2, 4)
        >>> batch = cuzarr.codecs.Encoder(codec, device="cpu").prepare(chunks)
        >>> batch.run()
        >>> len(batch.frames())
        2
        """
        rows = list(chunks) if isinstance(chunks, list | tuple) else [chunks[row] for row in range(chunks.shape[0])]
        batch = self._encoder.prepare([_chunk(row) for row in rows], scratch_limit)
        return EncodingBatch(batch, chunks, rows)

    def encode(self, chunks: list[Frame] | tuple[Frame, ...] | Rows, *, stream: Stream = None) -> list[MemoryArray]:
        """Encode chunks and wait: :meth:`prepare`, :meth:`EncodingBatch.run` and :meth:`EncodingBatch.frames` in one call.

        Parameters
        ----------
        chunks
            As for :meth:`prepare`.
        stream : optional
            As for :meth:`EncodingBatch.run`.

        Returns
        -------
        list of arrays
            The frames, in the order of the chunks.

        Raises
        ------
        CuzarrError
            The error of the first chunk that could not be encoded.

        >>> frames = cuzarr.codecs.Encoder(codec, device="cpu").encode(np.zeros((2, 1000), "uint8"))
        >>> len(frames), frames[0].dtype, frames[0].nbytes < 100
        (2, dtype('uint8'), True)
        """
        batch = self.prepare(chunks)
        batch.run(stream)
        return batch.frames()

    def __repr__(self) -> str:
        return f"Encoder({self._codecs}, device={self.device!r})"


__all__ = ["Encoder", "EncodingBatch"]
