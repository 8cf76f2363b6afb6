package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/qcow2"
)

const (
	maxChain    = 64       // images in a chain
	imageMemory = 80 << 20 // of the tables of a chain, while they are read, in bytes
	chainCache  = 32 << 20 // of all caches of a chain, in bytes
)

const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"
)

// Image is the disk in a file. It is safe for concurrent reads.
type Image struct {
	top    qcow2.Layer
	format string
	files  []*os.File
}

var (
	_ io.ReaderAt = (*Image)(nil)
	_ io.Closer   = (*Image)(nil)
)

// OpenImage opens a raw file, a block device or a qcow2 image, detected by their content. The
// backing files of a qcow2 image must be in its directory or below: images name each other by paths
// that are untrusted.
func OpenImage(name string) (*Image, error) {
	target, err := filepath.EvalSymlinks(name) // the user may name a link, an image may not
	if err != nil {
		return nil, err
	}
	folders, err := paths(filepath.Dir(target), filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folders[0])
	if err != nil {
		return nil, err
	}
	defer root.Close()
	o := chainOpener{root: root, folders: folders, img: &Image{}}
	if err := o.chain(filepath.Base(target)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), o.img.Close())
	}
	return o.img, nil
}

// paths returns the absolute paths of a directory: its own and, where it is the same, that by which
// the user named it. Images created under that path name it too.
func paths(folder, named string) ([]string, error) {
	var list []string
	for _, p := range []string{folder, named} {
		if to, err := filepath.EvalSymlinks(p); err != nil || to != folder {
			continue // the link is that of the file
		}
		p, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// Size returns the size of the disk in bytes.
func (i *Image) Size() int64 { return i.top.Size() }

// Format returns "raw" or "qcow2".
func (i *Image) Format() string { return i.format }

// NextData returns the next range at or after off that may contain anything but zeros; start == end
// means that there is none.
func (i *Image) NextData(off int64) (start, end int64, err error) { return qcow2.NextData(i.top, off) }

// ReadAt reads the disk.
func (i *Image) ReadAt(p []byte, off int64) (int, error) { return i.top.ReadAt(p, off) }

// Close closes the files.
func (i *Image) Close() error {
	var err error
	for _, f := range i.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// chainOpener opens a chain of images, the highest first.
type chainOpener struct {
	root    *os.Root
	folders []string // absolute paths of root
	img     *Image
	parts   []part // the highest first
	memory  int64
}

// part is a file of a chain.
type part struct {
	file  *os.File
	size  int64
	qcow2 bool
}

// chain opens an image and its backing files.
func (o *chainOpener) chain(name string) error {
	for format := ""; ; {
		names, err := o.open(name, format)
		if err != nil && len(o.parts) > 1 {
			return fmt.Errorf("its backing file %s: %w", name, err)
		}
		if err != nil {
			return err
		}
		if names.Backing == "" {
			break
		}
		if len(o.parts) == maxChain {
			return fmt.Errorf("it has more than %d backing files", maxChain-1)
		}
		if name, err = o.below(name, names.Backing); err != nil {
			return err
		}
		if format = names.Format; format != "" && format != formatRaw && format != formatQCOW2 {
			return fmt.Errorf("its backing file %s has the unsupported format %q", name, format)
		}
	}
	o.img.format = formatRaw
	if o.parts[0].qcow2 {
		o.img.format = formatQCOW2
	}
	return o.stack()
}

// open opens one file. format is the one that the image above names; "" detects it.
func (o *chainOpener) open(name, format string) (qcow2.Names, error) {
	f, size, err := openFile(o.root, name)
	if err != nil {
		return qcow2.Names{}, err
	}
	o.img.files = append(o.img.files, f)
	p := part{file: f, size: size, qcow2: format == formatQCOW2}
	if format == "" {
		p.qcow2 = isQCOW2(f)
	}
	o.parts = append(o.parts, p)
	if err := o.unlike(); err != nil || !p.qcow2 {
		return qcow2.Names{}, err
	}
	names, err := qcow2.ReadNames(f)
	if o.memory += names.Memory; err == nil && o.memory > imageMemory {
		err = errors.New("its tables take too much memory")
	}
	return names, err
}

// openFile opens a regular file or a block device of the directory. Opening another type could block
// indefinitely.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
	st, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !readable(st.Mode()) {
		return nil, 0, errors.New("it is neither a file nor a block device")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	if st, err = f.Stat(); err == nil && !readable(st.Mode()) {
		err = errors.New("it is neither a file nor a block device")
	}
	size := int64(0)
	if err == nil {
		size, err = f.Seek(0, io.SeekEnd)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, size, nil
}

func readable(m fs.FileMode) bool {
	return m.IsRegular() || m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
}

// isQCOW2 reports whether the first bytes are those of a qcow2 image.
func isQCOW2(r io.ReaderAt) bool {
	var b [4]byte
	n, _ := r.ReadAt(b[:], 0)
	return n == len(b) && bytes.Equal(b[:], []byte("QFI\xfb"))
}

// unlike returns an error if the last file occurs earlier in the chain.
func (o *chainOpener) unlike() error {
	last := len(o.parts) - 1
	mine, err := o.parts[last].file.Stat()
	if err != nil {
		return err
	}
	for _, p := range o.parts[:last] {
		if st, err := p.file.Stat(); err != nil || os.SameFile(st, mine) {
			return errors.Join(err, errors.New("the backing files form a cycle"))
		}
	}
	return nil
}

// below returns the path in the directory of the backing file of an image.
func (o *chainOpener) below(name, backing string) (string, error) {
	if strings.HasPrefix(backing, "json:") || protocol(backing) {
		return "", fmt.Errorf("its backing file %q is not a path", backing)
	}
	to := path.Join(path.Dir(name), backing)
	if path.IsAbs(backing) {
		to = backing
	}
	for _, folder := range o.folders {
		if in, ok := strings.CutPrefix(backing, strings.TrimSuffix(folder, "/")+"/"); ok {
			to = in
		}
	}
	if slices.Contains(strings.Split(backing, "/"), "..") || !filepath.IsLocal(to) {
		return "", fmt.Errorf("its backing file %q is not in its directory", backing)
	}
	return to, nil
}

// protocol reports whether a name begins as QEMU's names of remote images do, such as nbd:.
func protocol(name string) bool {
	before, _, found := strings.Cut(name, ":")
	return found && !strings.Contains(before, "/")
}

// stack combines the images to one disk.
func (o *chainOpener) stack() error {
	var layers []qcow2.Layer
	cache := int64(chainCache / len(o.parts) / 2)
	for _, p := range slices.Backward(o.parts) {
		if !p.qcow2 {
			layers = append(layers, qcow2.Flat(sparse(p), p.size))
			continue
		}
		image, err := qcow2.OpenPart(p.file, p.size, cache)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(p.file.Name()), err)
		}
		layers = append(layers, image)
	}
	o.img.top = layers[0]
	if len(layers) > 1 {
		o.img.top = qcow2.Stack(layers...)
	}
	return nil
}

// sparse returns a source for a raw file that knows its holes.
func sparse(p part) blob.FileSource { return blob.FileSource{File: p.file, Size: p.size} }
