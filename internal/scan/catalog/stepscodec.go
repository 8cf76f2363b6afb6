package catalog

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// The encoding of steps: numbers are varints, texts and lists have their length first, and a directory is
// followed by its files and then by its directories.

// errInvalidSteps reports bytes that are not those of Encode.
var errInvalidSteps = errors.New("invalid steps of a scan")

// Encode returns the steps for DecodeSteps.
func (s *Steps) Encode() []byte {
	return appendDir(make([]byte, 0, s.used.Load()/3), &s.root)
}

// Flags of an encoded step.
const (
	stepKept    = 1 << iota // it has reads
	stepSymlink             // its file is a symbolic link
)

func appendDir(b []byte, d *dirStep) []byte {
	b = appendHead(b, d.ref, d.reads)
	b = binary.AppendUvarint(b, uint64(d.fileCount))
	b = binary.AppendUvarint(b, uint64(len(d.files)))
	for _, f := range d.files {
		b = appendHead(b, f.ref, f.reads)
		b = appendBytes(b, f.extractors)
		b = appendBytes(b, f.found)
	}
	b = binary.AppendUvarint(b, uint64(len(d.dirs)))
	for _, sub := range d.dirs {
		b = appendDir(b, sub)
	}
	return b
}

func appendHead(b []byte, ref EntryRef, reads []byte) []byte {
	flags := byte(0)
	if ref.Type&fs.ModeSymlink != 0 {
		flags |= stepSymlink
	}
	if reads != nil {
		flags |= stepKept
	}
	b = appendBytes(append(b, flags), ref.Name)
	b = binary.AppendUvarint(b, ref.Inode)
	if reads != nil {
		b = appendBytes(b, reads)
	}
	return b
}

func appendBytes[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// DecodeSteps returns the steps of a tree from Encode, whose bytes it keeps.
func DecodeSteps(tree Tracked, data []byte) (*Steps, error) {
	s := NewSteps(tree)
	d := stepsDecoder{rest: data, steps: s}
	d.dir(&s.root, EntryRef{}, 0)
	if d.failed || len(d.rest) > 0 || !s.Complete() {
		return nil, errInvalidSteps
	}
	return s, nil
}

// stepsDecoder decodes steps. After the first failure every read returns zero values.
type stepsDecoder struct {
	rest   []byte
	failed bool
	steps  *Steps
}

func (d *stepsDecoder) fail() {
	d.rest, d.failed = nil, true
}

func (d *stepsDecoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count reads the length of a list whose elements take at least one byte each.
func (d *stepsDecoder) count() int {
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *stepsDecoder) bytes() []byte {
	n := d.count()
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *stepsDecoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

// dir reads a directory at a depth of the tree.
func (d *stepsDecoder) dir(s *dirStep, parent EntryRef, depth int) {
	if depth > maxDirDepth {
		d.fail()
		return
	}
	_ = d.head(&s.ref, &s.reads)
	s.ref.Parent, s.ref.Type = parent.Inode, fs.ModeDir
	if depth == 0 {
		s.ref.Type = 0
	}
	s.fileCount = int(d.uvarint() & (1<<31 - 1))
	files := make([]fileStep, d.memory(d.count()))
	s.files = make([]*fileStep, len(files))
	for i := range files {
		f := &files[i]
		if d.head(&f.ref, &f.reads)&stepSymlink != 0 {
			f.ref.Type = fs.ModeSymlink
		}
		f.ref.Parent = s.ref.Inode
		f.extractors, f.found = d.bytes(), d.bytes()
		s.files[i] = f
	}
	dirs := make([]dirStep, d.memory(d.count()))
	s.dirs = make([]*dirStep, len(dirs))
	for i := range dirs {
		d.dir(&dirs[i], s.ref, depth+1)
		s.dirs[i] = &dirs[i]
	}
}

// memory accounts for a list of steps, and returns its length.
func (d *stepsDecoder) memory(n int) int {
	if !d.steps.grow(n * stepBytes) {
		d.fail()
		return 0
	}
	return n
}

// head reads the beginning of a step, and returns its flags.
func (d *stepsDecoder) head(ref *EntryRef, reads *[]byte) byte {
	flags := d.byte()
	ref.Name, ref.Inode = string(d.bytes()), d.uvarint()
	if flags&stepKept != 0 {
		*reads = d.bytes()
	}
	d.steps.grow(len(ref.Name) + len(*reads))
	return flags
}

// Flags of an encoded package.
const (
	packageReplaced = 1 << iota
	packageLocations
	packageLicenses
	packageBundleIDs
	packageOrigin // the fields of Package.origin
	packageDevelopment
)

// insideMark begins an encoded location in an archive, in place of the archive's path: its directory may be renamed.
const insideMark = "\x00"

// encodeOutcome encodes the packages of a file, and the warnings about its content; place is its path in
// reports. Nothing found is an empty text.
func encodeOutcome(o fileOutcome, place string) []byte {
	if len(o.packages)+len(o.warnings) == 0 {
		return nil
	}
	var b []byte
	b = binary.AppendUvarint(b, uint64(len(o.warnings)))
	for _, w := range o.warnings {
		b = appendBytes(b, w.Message)
	}
	for _, p := range o.packages {
		flags := byte(0)
		lists := [...]struct {
			flag byte
			list []string
		}{{packageLocations, p.Locations}, {packageLicenses, p.Licenses}, {packageBundleIDs, p.BundleIDs}}
		if slices.Equal(p.Locations, []string{place}) {
			lists[0].list = nil
		}
		for _, l := range lists {
			if l.list != nil {
				flags |= l.flag
			}
		}
		if p.Replaced {
			flags |= packageReplaced
		}
		if p.Development {
			flags |= packageDevelopment
		}
		if p.HasOrigin() {
			flags |= packageOrigin
		}
		b = append(b, flags)
		b = appendBytes(appendBytes(appendBytes(b, string(p.Kind)), p.Name), p.Version)
		for _, l := range lists {
			if l.list == nil {
				continue
			}
			b = binary.AppendUvarint(b, uint64(len(l.list)))
			for _, text := range l.list {
				if rest, ok := strings.CutPrefix(text, place+archiveMark); ok && l.flag == packageLocations {
					text = insideMark + rest
				}
				b = appendBytes(b, text)
			}
		}
		if flags&packageOrigin != 0 {
			for _, text := range p.origin() {
				b = appendBytes(b, *text)
			}
		}
	}
	return b
}

// decodeOutcome decodes the outcome of a file, whose path in reports is place.
func decodeOutcome(found []byte, place string) (o fileOutcome, ok bool) {
	if len(found) == 0 {
		return o, true
	}
	d := stepsDecoder{rest: found}
	for range d.count() {
		o.warnings = append(o.warnings, Warning{Path: place, Message: string(d.bytes()), InvalidContent: true})
	}
	places := []string{place} // shared by all packages
	for len(d.rest) > 0 {
		flags := d.byte()
		p := Package{
			Kind: PackageType(d.bytes()), Name: string(d.bytes()), Version: string(d.bytes()), Locations: places,
			Replaced: flags&packageReplaced != 0, Development: flags&packageDevelopment != 0,
		}
		for _, l := range []struct {
			flag byte
			list *[]string
		}{{packageLocations, &p.Locations}, {packageLicenses, &p.Licenses}, {packageBundleIDs, &p.BundleIDs}} {
			if flags&l.flag == 0 {
				continue
			}
			*l.list = make([]string, d.count())
			for i := range *l.list {
				text := string(d.bytes())
				if rest, ok := strings.CutPrefix(text, insideMark); ok && l.flag == packageLocations {
					text = place + archiveMark + rest
				}
				(*l.list)[i] = text
			}
		}
		if flags&packageOrigin != 0 {
			for _, text := range p.origin() {
				*text = string(d.bytes())
			}
		}
		o.packages = append(o.packages, p)
	}
	return o, !d.failed
}
