package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content/file"
	"oras.land/oras-go/v2/registry/remote"
)

const (
	repository   = "bench/disk"
	artifactType = "application/vnd.bench.disk"
	layerType    = "application/vnd.bench.disk.layer+zstd"
	layerBytes   = 512 << 20
	parallel     = 4 // requests at a time, as our client has
)

// report is what a push or a pull did.
type report struct {
	Seconds float64          `json:"seconds"` // of the transfer, without compressing
	Layers  map[string]int64 `json:"layers"`  // digest to bytes
}

// push compresses the image into layers below dir and pushes them.
func push(ctx context.Context, args []string) (any, error) {
	address, tag, image, dir := args[0], args[1], args[2], args[3]
	names, err := compress(image, dir)
	if err != nil {
		return nil, err
	}
	store, err := file.New(dir)
	if err != nil {
		return nil, err
	}
	var out report
	err = transfer(func() error {
		out.Layers = map[string]int64{}
		var layers []ocispec.Descriptor
		for _, name := range names {
			d, err := store.Add(ctx, name, layerType, "")
			if err != nil {
				return err
			}
			out.Layers[d.Digest.String()] = d.Size
			layers = append(layers, d)
		}
		manifest, err := oras.PackManifest(ctx, store, oras.PackManifestVersion1_1, artifactType,
			oras.PackManifestOptions{Layers: layers})
		if err != nil {
			return err
		}
		if err := store.Tag(ctx, manifest, tag); err != nil {
			return err
		}
		remote, err := open(address)
		if err != nil {
			return err
		}
		_, err = oras.Copy(ctx, store, tag, remote, tag, options())
		return err
	}, &out)
	return out, errors.Join(err, store.Close())
}

// pull fetches the layers of a tag into dir, as they are, and puts them on stable storage.
func pull(ctx context.Context, args []string) (any, error) {
	address, tag, dir := args[0], args[1], args[2]
	store, err := file.New(dir)
	if err != nil {
		return nil, err
	}
	var out report
	err = transfer(func() error {
		remote, err := open(address)
		if err != nil {
			return err
		}
		if _, err := oras.Copy(ctx, remote, tag, store, tag, options()); err != nil {
			return err
		}
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			return sync(path)
		})
	}, &out)
	return out, errors.Join(err, store.Close())
}

// transfer measures the time of work.
func transfer(work func() error, out *report) error {
	began := time.Now()
	err := work()
	out.Seconds = time.Since(began).Seconds()
	return err
}

func open(address string) (*remote.Repository, error) {
	repo, err := remote.NewRepository(address + "/" + repository)
	if err != nil {
		return nil, err
	}
	repo.PlainHTTP = true
	return repo, nil
}

func options() oras.CopyOptions {
	o := oras.DefaultCopyOptions
	o.Concurrency = parallel
	return o
}

func sync(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// compress cuts an image into layers, each a separate file below dir, and names them.
func compress(image, dir string) (names []string, err error) {
	in, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	st, err := in.Stat()
	if err != nil {
		return nil, err
	}
	for off := int64(0); off < st.Size(); off += layerBytes {
		name := fmt.Sprintf("layer%02d.zst", off/layerBytes)
		if err := compressOne(io.NewSectionReader(in, off, layerBytes), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func compressOne(in io.Reader, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return errors.Join(err, f.Close())
	}
	_, err = io.Copy(w, in)
	return errors.Join(err, w.Close(), f.Close())
}
