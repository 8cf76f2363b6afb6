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
	maxChain        = 64       // images in a chain
	maxTableMemory  = 80 << 20 // of the tables of a chain, while they are read, in bytes
	chainCacheBytes = 32 << 20 // of all caches of a chain, in bytes
)

const (
	formatRaw   = "raw"
	formatQCOW2 = "qcow2"
	formatVMDK  = "vmdk"
	formatUDIF  = "dmg"
	formatOVA   = "ova"
)

// Image is the disk in a file, or several of an appliance. It is safe for concurrent reads.
type Image struct {
	layer   qcow2.Layer // of the first disk
	format  string
	files   []*os.File
	disks   []Disk
	skipped []Skipped
}

var (
	_ io.ReaderAt = (*Image)(nil)
	_ io.Closer   = (*Image)(nil)
)

// OpenImage opens a raw file, a block device, an image (qcow2, VMDK or DMG) or an appliance (OVA), detected by their
// content. The backing files of a qcow2 image and the extents of a VMDK image must be in its directory or
// below: images name other files by paths that are untrusted.
func OpenImage(name string) (*Image, error) {
	target, err := filepath.EvalSymlinks(name) // the user may name a link, an image may not
	if err != nil {
		return nil, err
	}
	dirs, err := dirPaths(filepath.Dir(target), filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dirs[0])
	if err != nil {
		return nil, err
	}
	defer root.Close()
	o := imageOpener{root: root, rootPaths: dirs, image: &Image{}}
	if err := o.openImage(filepath.Base(target)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), o.image.Close())
	}
	return o.image, nil
}

// dirPaths returns the absolute paths of a directory: its own and, where it is the same, that by which
// the user named it. Images created under that path name it too.
func dirPaths(dir, named string) ([]string, error) {
	var list []string
	for _, p := range []string{dir, named} {
		if to, err := filepath.EvalSymlinks(p); err != nil || to != dir {
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
func (i *Image) Size() int64 { return i.layer.Size() }

// Format returns "raw", "qcow2", "vmdk", "dmg" or "ova".
func (i *Image) Format() string { return i.format }

// Disks returns the disks of the image, at least one: only an appliance may have several. The other methods read the
// first.
func (i *Image) Disks() []Disk { return i.disks }

// Skipped returns the disks of an appliance that cannot be read.
func (i *Image) Skipped() []Skipped { return i.skipped }

// NextData returns the next range at or after off that may contain anything but zeros; start == end
// means that there is none.
func (i *Image) NextData(off int64) (start, end int64, err error) {
	return qcow2.NextData(i.layer, off)
}

// ReadAt reads the disk.
func (i *Image) ReadAt(p []byte, off int64) (int, error) { return i.layer.ReadAt(p, off) }

// Close closes the files.
func (i *Image) Close() error {
	var err error
	for _, f := range i.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// imageOpener opens the files of an image.
type imageOpener struct {
	root        *os.Root
	rootPaths   []string // absolute paths of root
	image       *Image
	chain       []chainFile // the highest first
	memoryBytes int64
}

// chainFile is a file of a chain of raw and qcow2 images.
type chainFile struct {
	file    *os.File
	size    int64
	isQCOW2 bool
}

// openImage opens the file that the user named, and those that it names.
func (o *imageOpener) openImage(name string) error {
	p, err := o.openFile(name)
	if err != nil {
		return err
	}
	for _, f := range fileFormats {
		if f.matches(p) {
			o.image.format = f.name
			return f.open(o, name, p)
		}
	}
	if err := o.openChain(name, p); err != nil {
		return err
	}
	o.image.addDisk(name)
	return nil
}

// openChain opens an image, whose file is open, and its backing files.
func (o *imageOpener) openChain(name string, p chainFile) error {
	for format := ""; ; {
		names, err := o.addToChain(p, format)
		if err != nil && len(o.chain) > 1 {
			return fmt.Errorf("backing file %s: %w", name, err)
		}
		if err != nil {
			return err
		}
		if names.BackingName == "" {
			break
		}
		if len(o.chain) == maxChain {
			return fmt.Errorf("the image has more than %d backing files", maxChain-1)
		}
		if name, err = o.localPath("backing file", name, names.BackingName); err != nil {
			return err
		}
		if format = names.BackingFormat; format != "" && format != formatRaw && format != formatQCOW2 {
			return fmt.Errorf("backing file %s has the unsupported format %q", name, format)
		}
		if p, err = o.openFile(name); err != nil {
			return fmt.Errorf("backing file %s: %w", name, err)
		}
	}
	o.image.format = formatRaw
	if o.chain[0].isQCOW2 {
		o.image.format = formatQCOW2
	}
	return o.combine()
}

// addToChain adds a file below the others. format is the one that the image above names; "" detects it.
func (o *imageOpener) addToChain(p chainFile, format string) (qcow2.BackingInfo, error) {
	p.isQCOW2 = format == formatQCOW2 || format == "" && isQCOW2(p.file)
	o.chain = append(o.chain, p)
	if err := o.checkCycle(); err != nil || !p.isQCOW2 {
		return qcow2.BackingInfo{}, err
	}
	names, err := qcow2.ReadBackingInfo(p.file)
	if o.memoryBytes += names.MemoryBytes; err == nil && o.memoryBytes > maxTableMemory {
		err = errors.New("the tables of the image take too much memory")
	}
	return names, err
}

// openFile opens a file of the directory, which is closed with the image.
func (o *imageOpener) openFile(name string) (chainFile, error) {
	f, size, err := openFile(o.root, name)
	if err != nil {
		return chainFile{}, err
	}
	o.image.files = append(o.image.files, f)
	return chainFile{file: f, size: size}, nil
}

// openFile opens a regular file or a block device of the directory. Opening another type could block
// indefinitely.
func openFile(root *os.Root, name string) (*os.File, int64, error) {
	st, err := root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !isReadableType(st.Mode()) {
		return nil, 0, errors.New("not a regular file or block device")
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	if st, err = f.Stat(); err == nil && !isReadableType(st.Mode()) {
		err = errors.New("not a regular file or block device")
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

func isReadableType(m fs.FileMode) bool {
	return m.IsRegular() || m&fs.ModeDevice != 0 && m&fs.ModeCharDevice == 0
}

// isQCOW2 reports whether the first bytes are those of a qcow2 image.
func isQCOW2(r io.ReaderAt) bool {
	var b [4]byte
	n, _ := r.ReadAt(b[:], 0)
	return n == len(b) && bytes.Equal(b[:], []byte("QFI\xfb"))
}

// checkCycle returns an error if the last file occurs earlier in the chain.
func (o *imageOpener) checkCycle() error {
	last := len(o.chain) - 1
	mine, err := o.chain[last].file.Stat()
	if err != nil {
		return err
	}
	for _, p := range o.chain[:last] {
		if st, err := p.file.Stat(); err != nil || os.SameFile(st, mine) {
			return errors.Join(err, errors.New("the backing files form a cycle"))
		}
	}
	return nil
}

// localPath returns the path in the directory of another file that an image names. what is its role, for errors.
func (o *imageOpener) localPath(what, name, other string) (string, error) {
	if strings.HasPrefix(other, "json:") || hasProtocol(other) {
		return "", fmt.Errorf("%s %q is not a path", what, other)
	}
	to := path.Join(path.Dir(name), other)
	if path.IsAbs(other) {
		to = other
	}
	for _, dir := range o.rootPaths {
		if in, ok := strings.CutPrefix(other, strings.TrimSuffix(dir, "/")+"/"); ok {
			to = in
		}
	}
	if slices.Contains(strings.Split(other, "/"), "..") || !filepath.IsLocal(to) {
		return "", fmt.Errorf("%s %q is outside of the directory of the image", what, other)
	}
	return to, nil
}

// hasProtocol reports whether a name begins as QEMU's names of remote images do, such as nbd:.
func hasProtocol(name string) bool {
	before, _, found := strings.Cut(name, ":")
	return found && !strings.Contains(before, "/")
}

// combine combines the images to one disk.
func (o *imageOpener) combine() error {
	var layers []qcow2.Layer
	cache := int64(chainCacheBytes / len(o.chain) / 2)
	for _, p := range slices.Backward(o.chain) {
		if !p.isQCOW2 {
			layers = append(layers, p.layer())
			continue
		}
		image, err := qcow2.OpenOverlay(p.file, p.size, cache)
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(p.file.Name()), err)
		}
		layers = append(layers, image)
	}
	o.image.layer = layers[0]
	if len(layers) > 1 {
		o.image.layer = qcow2.Stack(layers...)
	}
	return nil
}

// layer returns the bytes of a file, whose holes are known.
func (p chainFile) layer() qcow2.Layer {
	return qcow2.RawLayer(blob.FileSource{File: p.file, Size: p.size}, p.size)
}
