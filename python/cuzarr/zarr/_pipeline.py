"""A codec pipeline by which zarr-python reads and writes through cuzarr.

A request of zarr-python is a list of chunks, each with its key, the part of the chunk and the part of the result. If
the parts form a box, the Rust side reads or writes all of them in one call, directly to or from zarr-python's array.
Otherwise (coordinates, masks, lists of indices), whole chunks are decoded in one call, and NumPy or CuPy moves the
elements. All other requests go to zarr-python's own pipeline, and are counted by reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from zarr.abc.codec import CodecPipeline as ZarrCodecPipeline
from zarr.codecs._v2 import V2Codec
from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.sync import sync
from zarr.registry import register_pipeline

from cuzarr import _core
from cuzarr._docstrings import documented
from cuzarr.zarr import _fancy, _threads
from cuzarr.zarr._ahead import Ahead
from cuzarr.zarr._chunks import Chunks, open_chunks, shards_are_patched
from cuzarr.zarr._fallbacks import Fallback, count_native, fall_back, go_by_host
from cuzarr.zarr._host import read_by_zarr, write_by_zarr
from cuzarr.zarr._memory import empty_like, is_host, read_box, write_box
from cuzarr.zarr._sources import given_values
from cuzarr.zarr._work import Work, cancel_all, reading as _reading, run_options, writing as _writing

if TYPE_CHECKING:
    from zarr.abc.codec import ArrayBytesCodec, Codec
    from zarr.abc.store import Store
    from zarr.core.buffer import NDBuffer
    from zarr.core.metadata import ArrayMetadata

_PRESENT = {"status": "present"}
_MISSING = {"status": "missing"}


@documented(
    """
    max_workers : int
        Not used: cuzarr's own threads do the work.
    >>> import cuzarr.zarr, zarr
    """,
)
class CodecPipeline(ZarrCodecPipeline):
    """A codec pipeline for zarr-python that reads and writes the chunks of its arrays through cuzarr.

    It is chosen by ``cuzarr.zarr.enable()``, or by the setting
    ``zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"})``.

    Parameters
    ----------
    base : BatchedCodecPipeline
        The pipeline of zarr-python for requests that cuzarr cannot serve.

    Raises
    ------
    FallbackRefusedError
        cuzarr leaves an array to zarr-python, and ``strict`` forbids it.

    >>> with zarr.config.set({"codec_pipeline.path": "cuzarr.zarr.CodecPipeline"}):
    ...     zarr.zeros(store={}, shape=(2,))[:].tolist()
    [0.0, 0.0]
    """

    def __init__(self, base: BatchedCodecPipeline) -> None:
        self._base = base
        self._codecs = tuple(base)
        self._chunks: list[tuple[Any, Chunks | str]] = []
        self._told: set[tuple[str, bool]] = set()

    # --------------------------------------------------------------------------------------------- what it is made of

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec], **kwargs: Any) -> Self:
        """Make a pipeline with the given codecs. zarr-python calls it for each array.

        Parameters
        ----------
        codecs : iterable of zarr.abc.codec.Codec
            The codecs in the order of encoding.
        **kwargs
            Settings of zarr-python's own pipeline.

        >>> cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()])
        CodecPipeline(BytesCodec, ZstdCodec)
        """
        return cls(BatchedCodecPipeline.from_codecs(codecs, **kwargs))

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: ArrayMetadata, store: Store | None) -> Self:
        """Make the pipeline for an array, from its metadata.

        Parameters
        ----------
        array_metadata : zarr.core.metadata.ArrayMetadata
            The metadata of the array.
        store : zarr.abc.store.Store
            The array's store. It is not used.

        Returns
        -------
        CodecPipeline
            The pipeline, in which open settings of the codecs are filled in.

        >>> array = zarr.zeros(store={}, shape=(4,), dtype="int16")
        >>> cuzarr.zarr.CodecPipeline.from_array_metadata_and_store(array.metadata, array.store)
        CodecPipeline(BytesCodec, ZstdCodec)
        """
        if array_metadata.zarr_format == 2:
            codecs: Any = [V2Codec(filters=array_metadata.filters, compressor=array_metadata.compressor)]
            shape, settings = array_metadata.chunks, {"order": array_metadata.order}
        else:
            # Rectilinear grids have chunks of many shapes. Each request gives the shapes of its chunks.
            grid = array_metadata.chunk_grid
            shape = getattr(grid, "chunk_shape", (1,) * len(array_metadata.shape))
            codecs, settings = array_metadata.codecs, {}
        spec = ArraySpec(
            shape=shape,
            dtype=array_metadata.dtype,
            fill_value=array_metadata.fill_value,
            config=ArrayConfig.from_dict(settings),  # type: ignore[arg-type]
            prototype=default_buffer_prototype(),
        )
        return cls.from_codecs(codecs).evolve_from_array_spec(spec)

    def evolve_from_array_spec(self, array_spec: ArraySpec) -> Self:
        """Adapt this pipeline to an array: settings that codecs left open, such as an element size, are filled in.

        Parameters
        ----------
        array_spec : zarr.core.array_spec.ArraySpec
            Shape, type and fill value of the chunks.

        >>> from zarr.core.array_spec import ArrayConfig, ArraySpec
        >>> from zarr.core.buffer import cpu
        >>> array = zarr.zeros(store={}, shape=(4,), dtype="float32")
        >>> spec = ArraySpec((4,), array.metadata.data_type, 0.0, ArrayConfig.from_dict({}), cpu.buffer_prototype)
        >>> pipeline = cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec(), zarr.codecs.BloscCodec()])
        >>> pipeline.evolve_from_array_spec(spec).codecs[1].typesize
        4
        """
        evolved: list[Any] = []
        for codec in self._codecs:
            evolved.append(codec.evolve_from_array_spec(array_spec))
            array_spec = evolved[-1].resolve_metadata(array_spec)
        arrays = len(self.array_array_codecs)
        base = replace(
            self._base,
            array_array_codecs=tuple(evolved[:arrays]),
            array_bytes_codec=evolved[arrays],
            bytes_bytes_codecs=tuple(evolved[arrays + 1 :]),
        )
        return type(self)(base)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._codecs)

    @property
    def codecs(self) -> tuple[Any, ...]:
        """All codecs of this pipeline, in order of encoding."""
        return self._codecs

    @property
    def array_array_codecs(self) -> tuple[Any, ...]:
        """The codecs of this pipeline from arrays to arrays."""
        return self._base.array_array_codecs

    @property
    def array_bytes_codec(self) -> ArrayBytesCodec:
        """The codec of this pipeline from arrays to bytes."""
        return self._base.array_bytes_codec

    @property
    def bytes_bytes_codecs(self) -> tuple[Any, ...]:
        """The codecs of this pipeline from bytes to bytes."""
        return self._base.bytes_bytes_codecs

    @property
    def batch_size(self) -> int:
        """The number of chunks in one batch of zarr-python's own pipeline. In cuzarr a request is one batch."""
        return self._base.batch_size

    @property
    def supports_partial_decode(self) -> bool:
        """Whether parts of a chunk can be decoded separately."""
        return self._base.supports_partial_decode

    @property
    def supports_partial_encode(self) -> bool:
        """Whether parts of a chunk can be replaced separately."""
        return self._base.supports_partial_encode

    def validate(self, **kwargs: Any) -> None:
        """Check that the codecs of this pipeline fit an array. zarr-python calls this when an array is created.

        Parameters
        ----------
        **kwargs
            ``shape``, ``dtype`` and ``chunk_grid`` of the array, as objects of zarr-python.

        Raises
        ------
        ValueError, TypeError
            A codec does not fit; the codec's error gives the reason.

        >>> metadata = zarr.zeros(store={}, shape=(4,), dtype="int16").metadata
        >>> pipeline = cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec()])
        >>> pipeline.validate(shape=(4,), dtype=metadata.data_type, chunk_grid=metadata.chunk_grid)
        """
        self._base.validate(**kwargs)

    def compute_encoded_size(self, byte_length: int, array_spec: ArraySpec) -> int:
        """Size of an encoded chunk in bytes, if all codecs have a fixed size.

        Parameters
        ----------
        byte_length : int
            Size of the decoded chunk in bytes.
        array_spec : zarr.core.array_spec.ArraySpec
            Shape and type of the chunk.

        Raises
        ------
        NotImplementedError
            The size depends on the data, as with every compressor.

        >>> from zarr.core.array_spec import ArrayConfig, ArraySpec
        >>> from zarr.core.buffer import cpu
        >>> array = zarr.zeros(store={}, shape=(4,), dtype="float32")
        >>> spec = ArraySpec((4,), array.metadata.data_type, 0.0, ArrayConfig.from_dict({}), cpu.buffer_prototype)
        >>> cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec()]).compute_encoded_size(16, spec)
        16
        """
        return self._base.compute_encoded_size(byte_length, array_spec)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._base == other._base

    def __hash__(self) -> int:
        return hash((type(self), self._base))

    def __getstate__(self) -> dict[str, Any]:
        return {"base": self._base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["base"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"CodecPipeline({', '.join(type(codec).__name__ for codec in self)})"

    # ------------------------------------------------------------------------------------------------ reading, writing

    @Ahead
    async def read(
        self, batch_info: Iterable[tuple[Any, Any, Any, Any, bool]], out: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        """Read parts of chunks into an array. zarr-python calls this for every read.

        Parameters
        ----------
        batch_info : iterable of tuple
            For each chunk: the place of its bytes, its ``ArraySpec``, the part of the chunk, the part of the result, and whether
            the whole chunk is read.
        out : zarr.core.buffer.NDBuffer
            The result, which is filled.
        drop_axes : tuple of int
            Dimensions of the chunks that the result does not have.

        Returns
        -------
        tuple of dict
            ``{"status": "present"}`` or ``{"status": "missing"}`` for each chunk. Empty for a read that was started before its chunks
            were listed.

        Raises
        ------
        ChunkCorruptError
            A chunk could not be decoded.

        >>> with cuzarr.zarr.enable():
        ...     array = zarr.ones(store={}, shape=(4,), chunks=(2,))
        ...     array[1:3].tolist()
        [1.0, 1.0]
        """
        batch = list(batch_info)
        if not batch:
            return ()
        work = self._plan(_reading, batch, out, drop_axes)
        if work is None:
            return await read_by_zarr(self._base, batch, out, drop_axes)
        return _results(len(batch), await work.run())

    def read_sync(
        self,
        batch_info: Iterable[tuple[Any, Any, Any, Any, bool]],
        out: NDBuffer,
        drop_axes: tuple[int, ...] = (),
        max_workers: int = 1,
    ) -> tuple[Any, ...]:
        """Read parts of chunks into an array, from a thread without an event loop. Otherwise like :meth:`read`.

        Parameters
        ----------
        batch_info, out, drop_axes
            As for :meth:`read`.

        Returns
        -------
        tuple of dict
            As for :meth:`read`.

        Raises
        ------
        ChunkCorruptError
            A chunk could not be decoded.

        >>> with cuzarr.zarr.enable():
        ...     zarr.ones(store={}, shape=(4,), chunks=(2,))[1:3].tolist()
        [1.0, 1.0]
        """
        batch = list(batch_info)
        if not batch:
            return ()
        work = self._plan(_reading, batch, out, drop_axes)
        if work is None:
            return sync(read_by_zarr(self._base, batch, out, drop_axes))
        return _results(len(batch), work.run_sync())

    async def write(
        self, batch_info: Iterable[tuple[Any, Any, Any, Any, bool]], value: NDBuffer, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Write elements into chunks. zarr-python calls this for every write. Other elements of the chunks are kept.

        Parameters
        ----------
        batch_info : iterable of tuple
            For each chunk: the place for its bytes, its ``ArraySpec``, the part of the chunk, the part of ``value``, and whether the
            whole chunk is written.
        value : zarr.core.buffer.NDBuffer
            The elements.
        drop_axes : tuple of int
            Dimensions of the chunks that ``value`` does not have.

        Raises
        ------
        EncodeFailedError
            A chunk could not be encoded.

        >>> with cuzarr.zarr.enable():
        ...     array = zarr.zeros(store={}, shape=(4,), chunks=(2,))
        ...     array[1:3] = 7
        ...     array[:].tolist()
        [0.0, 7.0, 7.0, 0.0]
        """
        if batch := list(batch_info):
            work = self._plan(_writing, batch, value, drop_axes)
            await (write_by_zarr(self._base, batch, value, drop_axes) if work is None else work.run())

    def write_sync(
        self,
        batch_info: Iterable[tuple[Any, Any, Any, Any, bool]],
        value: NDBuffer,
        drop_axes: tuple[int, ...] = (),
        max_workers: int = 1,
    ) -> None:
        """Write elements into chunks, from a thread without an event loop. Otherwise like :meth:`write`.

        Parameters
        ----------
        batch_info, value, drop_axes
            As for :meth:`write`.

        Raises
        ------
        EncodeFailedError
            A chunk could not be encoded.

        >>> with cuzarr.zarr.enable():
        ...     array = zarr.zeros(store={}, shape=(4,), chunks=(2,))
        ...     array[:] = 7
        ...     array[:].tolist()
        [7.0, 7.0, 7.0, 7.0]
        """
        if batch := list(batch_info):
            work = self._plan(_writing, batch, value, drop_axes)
            if work is None:
                sync(write_by_zarr(self._base, batch, value, drop_axes))
            else:
                work.run_sync()

    def _plan(self, plan: Any, batch: list[Any], buffer: NDBuffer, drop_axes: tuple[int, ...]) -> Work | None:
        """Prepares to read or write the chunks that zarr-python passes; returns ``None`` if zarr-python's own code must do it."""
        array = buffer.as_ndarray_like()
        try:
            work: Work = plan(self._chunks_of, batch, array, drop_axes)
        except Fallback as reason:
            fall_back(str(reason), on_device=not is_host(array), told=self._told)
            return None
        if work.by_host:
            go_by_host(work.by_host, told=self._told)
        return work

    # ---------------------------------------------------------------------------------------------- decoding, encoding

    async def decode(self, chunk_bytes_and_specs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
        """Decode chunks whose bytes are in memory.

        Parameters
        ----------
        chunk_bytes_and_specs : iterable of (Buffer or None, ArraySpec)
            Bytes and specification of each chunk, as objects of zarr-python.

        Returns
        -------
        iterable of NDBuffer or None
            The decoded chunks, in the order given. ``None`` stays ``None``.

        Raises
        ------
        ChunkCorruptError
            A chunk could not be decoded.

        >>> import asyncio, cuzarr.zarr, numpy as np, zarr
        >>> from zarr.core.array_spec import ArrayConfig, ArraySpec
        >>> from zarr.core.buffer import cpu
        >>> array = zarr.zeros(store={}, shape=(4,), dtype="float32")
        >>> spec = ArraySpec((4,), array.metadata.data_type, 0.0, ArrayConfig.from_dict({}), cpu.buffer_prototype)
        >>> pipeline = cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()])
        >>> chunk = cpu.NDBuffer.from_numpy_array(np.arange(4, dtype="float32"))
        >>> async def through():
        ...     frames = await pipeline.encode([(chunk, spec)])
        ...     return list(await pipeline.decode([(frame, spec) for frame in frames]))
        >>> asyncio.run(through())[0].as_numpy_array().tolist()
        [0.0, 1.0, 2.0, 3.0]
        """
        given = list(chunk_bytes_and_specs)
        values = [value for value, _ in given]
        try:
            groups = _fancy.group_specs([spec for _, spec in given], self._chunks_of, values)
        except Fallback as reason:
            fall_back(str(reason), on_device=False, told=self._told)
            return await self._base.decode(given)
        decoded: list[Any] = [None] * len(given)

        def work() -> None:
            for part in groups:
                prototype = given[part.items[0]][1].prototype
                like = prototype.nd_buffer.empty(shape=(0,), dtype=part.chunks.native).as_ndarray_like()
                elements = empty_like(like, part.stacked_shape, part.chunks)
                read_box(
                    part.request, part.chunks, given_values(values), elements, run_options(given[part.items[0]][1], part.chunks)
                )
                for rank, item in enumerate(part.items):
                    wanted = given[item][1].dtype.to_native_dtype()
                    chunk = part.chunk(elements, rank)
                    chunk = chunk if chunk.dtype == wanted else chunk.astype(wanted)
                    decoded[item] = prototype.nd_buffer.from_ndarray_like(chunk)

        await _threads.run(work, lambda: cancel_all(part.request for part in groups))
        count_native("decode")
        return decoded

    async def encode(self, chunk_arrays_and_specs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
        """Encode chunks that are in memory.

        Parameters
        ----------
        chunk_arrays_and_specs : iterable of (NDBuffer or None, ArraySpec)
            Elements and specification of each chunk, as objects of zarr-python.

        Returns
        -------
        iterable of Buffer or None
            The encoded chunks, in the order given. ``None`` stays ``None``.

        Raises
        ------
        EncodeFailedError
            A chunk could not be encoded.

        >>> import asyncio, cuzarr.zarr, numpy as np, zarr
        >>> from zarr.core.array_spec import ArrayConfig, ArraySpec
        >>> from zarr.core.buffer import cpu
        >>> array = zarr.zeros(store={}, shape=(4,), dtype="float32")
        >>> spec = ArraySpec((4,), array.metadata.data_type, 0.0, ArrayConfig.from_dict({}), cpu.buffer_prototype)
        >>> pipeline = cuzarr.zarr.CodecPipeline.from_codecs([zarr.codecs.BytesCodec()])
        >>> chunk = cpu.NDBuffer.from_numpy_array(np.arange(4, dtype="float32"))
        >>> [len(frame) for frame in asyncio.run(pipeline.encode([(chunk, spec)]))]
        [16]
        """
        given = list(chunk_arrays_and_specs)
        arrays = [value for value, _ in given]
        try:
            groups = _fancy.group_specs([spec for _, spec in given], self._chunks_of, arrays)
            if any(part.chunks.core.is_sharded for part in groups):
                raise Fallback("shards are encoded with their array, not by themselves")
        except Fallback as reason:
            fall_back(str(reason), on_device=False, told=self._told)
            return await self._base.encode(given)
        encoded: list[Any] = [None] * len(given)

        def work() -> None:
            for part in groups:
                for item in part.items:
                    stored: dict[str, Any] = {}
                    request = _core.ChunkRequest.stacked([str(item)], part.chunks.shape)
                    options = run_options(given[item][1], part.chunks) | {"write_empty_chunks": True}
                    write_box(request, part.chunks, _fancy.collect(stored), arrays[item].as_ndarray_like(), options)
                    encoded[item] = given[item][1].prototype.buffer.from_buffer(stored[str(item)])

        await _threads.run(work, lambda: cancel_all(part.request for part in groups))
        count_native("encode")
        return encoded

    def _chunks_of(self, spec: Any) -> Chunks:
        """The Rust engine's codecs for chunks with a zarr-python ``ArraySpec``, reused from an earlier call if possible. The chunks of a
        request share it, so the last ones are tried first."""
        for known, found in self._chunks:
            if known is spec or _same_chunks(known, spec):
                break
        else:
            try:
                found = open_chunks(self._codecs, spec)
            except Fallback as reason:
                found = str(reason)
            self._chunks = [(spec, found), *self._chunks[:15]]
        if isinstance(found, str):
            raise Fallback(found)
        if found.core.is_sharded and shards_are_patched():
            raise Fallback("a program changed zarr-python's code for shards")
        return found


def _cancel(parts: Iterable[Any]) -> None:
    for part in parts:
        part.request.cancel()


def _same_chunks(left: Any, right: Any) -> bool:
    return (
        left.shape == right.shape
        and left.dtype == right.dtype
        and left.order == right.order
        and (left.fill_value is right.fill_value or ArraySpec.__eq__(left, right))
    )


def _results(count: int, missing: list[int]) -> tuple[Any, ...]:
    results = [_PRESENT] * count
    for item in missing:
        results[item] = _MISSING
    return tuple(results)


# zarr-python looks up classes by module and name.
CodecPipeline.__module__ = "cuzarr.zarr"
register_pipeline(CodecPipeline)
