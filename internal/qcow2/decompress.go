package qcow2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds the memory of a zstd stream: twice the largest cluster.
const maxZstdWindow = 2 << maxClusterBits

// zstdReaders pools decoders, which are expensive to create.
var zstdReaders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow), zstd.WithDecoderMaxMemory(maxZstdWindow))
	if err != nil {
		panic(err) // constant options
	}
	return d
}}

// decompressCluster reads a compressed cluster. Its length is known in sectors only, and the last one may be
// incomplete in the file, so neither its end nor what follows it is checked.
func (i *Image) decompressCluster(at, packed int64) ([]byte, error) {
	raw := make([]byte, packed)
	n, err := i.r.ReadAt(raw, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	out := make([]byte, i.clusterSize)
	if i.header.compressionType == compressZstd {
		err = inflateZstd(out, raw[:n])
	} else {
		r := flate.NewReader(bytes.NewReader(raw[:n]))
		_, err = io.ReadFull(r, out)
	}
	if err != nil {
		return nil, fmt.Errorf("compressed cluster at %d: %w", at, err)
	}
	return out, nil
}

func inflateZstd(out, raw []byte) error {
	d := zstdReaders.Get().(*zstd.Decoder)
	defer zstdReaders.Put(d)
	if err := d.Reset(bytes.NewReader(raw)); err != nil {
		return err
	}
	_, err := io.ReadFull(d, out)
	return errors.Join(err, d.Reset(nil)) // releases raw
}
