package container

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Options tell which content of files is kept in memory while the layers are read.
type Options struct {
	// Wants reports whether a scan reads a regular file, and whether it reads only parts of it.
	Wants func(name string, info fs.FileInfo) (isWanted, isPartial bool)
	// Probe reads of a file what a scan reads.
	Probe func(ctx context.Context, name string, f fs.File)
	// Progress is called with the number of entries that were read, by one goroutine at a time; may be nil.
	Progress func(entries int)

	keptBytes  int64 // of content in memory; 0: the usual limit
	probeBytes int64 // of a file that is probed; 0: the usual limit
}

// entry is a file as the archive of a layer has it.
type entry struct {
	path       string // from the root, without a slash
	target     string // of a link
	mode       fs.FileMode
	ordinal    int32
	isHardLink bool
	file       *content // of a regular file
}

// Skipped is a layer that was not read, or only in part.
type Skipped struct{ Name, Reason string }

// Tree is the merged file system of an image. It is safe for concurrent use, as long as its image is open.
type Tree struct {
	Skipped      []Skipped
	Problems     []Problem
	ProblemCount int

	ctx     context.Context
	image   *Image
	options Options
	root    *node
	budget  atomic.Int64 // bytes of content that may still be kept
	left    atomic.Int64 // bytes that may still be decompressed
	plain   atomic.Int64 // bytes of all decompressed layers
	entries atomic.Int64
	names   atomic.Int64 // bytes
	probing sync.Mutex   // guards large
	large   []byte       // a file that is probed
	refetch refetcher

	reporting sync.Mutex // of progress
}

// Tree reads all layers, several at a time. ctx also ends later reads.
func (i *Image) Tree(ctx context.Context, o Options) (*Tree, error) {
	t := &Tree{ctx: ctx, image: i, options: o, root: newDir(0)}
	t.left.Store(maxImageBytes)
	t.budget.Store(cmp.Or(o.keptBytes, maxKeptBytes))
	layers := make([]layerIndex, len(i.layers))
	ready := make([]chan struct{}, len(layers))
	for k := range ready {
		ready[k] = make(chan struct{})
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(layers)) {
		all.Go(func() {
			for k := int(next.Add(1) - 1); k < len(layers); k = int(next.Add(1) - 1) {
				layers[k] = t.indexLayer(k)
				close(ready[k])
			}
		})
	}
	b := builder{root: t.root, steps: maxSteps}
	for k := range layers {
		<-ready[k]
		if ctx.Err() == nil {
			b.apply(k, layers[k].entries)
		}
		if err := layers[k].err; err != nil {
			t.Skipped = append(t.Skipped, Skipped{i.layerName(k), err.Error()})
		}
		layers[k] = layerIndex{}
	}
	all.Wait()
	t.large = nil
	t.Problems, t.ProblemCount = b.problems, b.count
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return t, nil
}

// layerName names a layer for reports, counted from 1.
func (i *Image) layerName(k int) string {
	l := i.layers[k]
	return fmt.Sprintf("layer %d of %d (%s)", k+1, len(i.layers), cmp.Or(string(l.digest), l.name))
}

// layerIndex is what a layer has.
type layerIndex struct {
	entries []entry
	err     error // why not all of it was read
}

// layerTypes are the media types of layers without their compression, which the content tells.
var layerTypes = []string{
	"application/vnd.oci.image.layer.v1.tar",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.docker.image.rootfs.foreign.diff.tar",
}

// checkType returns why a layer cannot be read; nil for an archive.
func (l layerSource) checkType() error {
	switch {
	case l.mediaType == "":
		return nil // an archive of Docker
	case strings.HasSuffix(l.mediaType, "+encrypted"):
		return errors.New("it is encrypted")
	case !slices.ContainsFunc(layerTypes, func(t string) bool { return l.hasType(t) }):
		return fmt.Errorf("its media type %.100q is not supported", l.mediaType)
	}
	return nil
}

func (l layerSource) hasType(want string) bool {
	rest, ok := strings.CutPrefix(l.mediaType, want)
	return ok && slices.Contains([]string{"", "+gzip", "+zstd", ".gzip", ".zstd"}, rest)
}

// isForeign reports whether a layer may be elsewhere than in the archive.
func (l layerSource) isForeign() bool {
	return strings.Contains(l.mediaType, ".foreign.") || strings.Contains(l.mediaType, ".nondistributable.")
}

// indexLayer reads a layer once.
func (t *Tree) indexLayer(k int) (out layerIndex) {
	source := t.image.layers[k]
	if out.err = source.checkType(); out.err != nil {
		return out
	}
	s, err := openLayer(t.ctx, t.image.store, source, &t.left)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("it is not in the archive")
		if source.isForeign() {
			err = errors.New("it is a foreign layer, which the archive does not have")
		}
	}
	if err != nil {
		return layerIndex{err: err}
	}
	defer s.close()
	r := layerReader{tree: t, stream: s, layer: int32(k)}
	err = r.readAll()
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		err = fmt.Errorf("read in part: %w", err)
	}
	return layerIndex{r.entries, err}
}

// progressEntries are the entries between two calls of Options.Progress.
const progressEntries = 1024

// layerReader lists the entries of a layer, and keeps content.
type layerReader struct {
	tree    *Tree
	stream  *layerStream
	layer   int32
	entries []entry
	keeper
}

func (r *layerReader) readAll() error {
	for ordinal := int32(0); ; ordinal++ {
		h, err := r.stream.Next()
		if errors.Is(err, io.EOF) {
			r.tree.plain.Add(r.stream.data.read)
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.add(h, ordinal); err != nil {
			return err
		}
	}
}

// add adds the entry of a header.
func (r *layerReader) add(h *tar.Header, ordinal int32) error {
	e := entry{path: cleanName(h.Name), ordinal: ordinal, mode: fs.FileMode(h.Mode & 0o777)}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		e.file = &content{layer: r.layer, ordinal: ordinal, size: h.Size}
	case tar.TypeLink:
		e.isHardLink, e.target = true, cleanName(h.Linkname)
	case tar.TypeSymlink:
		e.mode, e.target = fs.ModeSymlink|0o777, h.Linkname
	case tar.TypeDir:
		e.mode |= fs.ModeDir
	case tar.TypeChar:
		e.mode |= fs.ModeDevice | fs.ModeCharDevice
	case tar.TypeBlock:
		e.mode |= fs.ModeDevice
	case tar.TypeFifo:
		e.mode |= fs.ModeNamedPipe
	default:
		return nil // about the archive, such as a comment
	}
	t := r.tree
	if len(e.path) > maxPathBytes || len(e.target) > maxPathBytes {
		return fmt.Errorf("%.100q...: the path has more than %d bytes", e.path, maxPathBytes)
	}
	n := t.entries.Add(1)
	if n%progressEntries == 0 && t.options.Progress != nil {
		t.reporting.Lock()
		t.options.Progress(int(n))
		t.reporting.Unlock()
	}
	if n > maxEntries || t.names.Add(int64(len(e.path)+len(e.target))) > maxNamesSum {
		return fmt.Errorf("the image has more than %d files, or %d bytes of names", maxEntries, maxNamesSum)
	}
	r.entries = append(r.entries, e)
	if e.file == nil {
		return nil
	}
	if h.Size > maxLayerBytes { // holes take no bytes of the archive
		e.file.err = fmt.Errorf("it has %d bytes", h.Size)
		return nil
	}
	if wanted, partial := t.options.Wants(e.path, e.info()); wanted {
		return r.keep(t, r.stream, &e, partial)
	}
	return nil
}

func (e *entry) info() fs.FileInfo {
	return fileInfo{name: baseName(e.path), mode: e.mode, size: e.file.size}
}
