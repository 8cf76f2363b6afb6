package vmdk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

const (
	maxDescriptorBytes = 1 << 20
	maxExtents         = 2048
)

// noParent is the content ID of the parent of an image without one.
const noParent = 0xffffffff

// descriptor is the text that describes an image.
type descriptor struct {
	parentID   uint64 // content ID of the parent; noParent = none
	parentName string
	extents    []extentLine
}

// extentLine is a line about an extent.
type extentLine struct {
	kind   string // FLAT, SPARSE, ZERO or another type
	bytes  int64
	name   string // of the file
	offset int64  // of its data in a flat file, in bytes
}

// readDescriptor reads size bytes of text from off.
func readDescriptor(r io.ReaderAt, off, size int64) (descriptor, error) {
	if size > maxDescriptorBytes {
		return descriptor{}, chunked.Damaged("its descriptor has %d bytes", size)
	}
	text := make([]byte, size)
	if err := chunked.ReadFull(r, text, off, "the descriptor"); err != nil {
		return descriptor{}, err
	}
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return parseDescriptor(string(text))
}

// parseDescriptor reads lines of the form key=value, and those of extents.
func parseDescriptor(text string) (descriptor, error) {
	d := descriptor{parentID: noParent}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if access, rest, _ := strings.Cut(line, " "); access == "RW" || access == "RDONLY" || access == "NOACCESS" {
			if len(d.extents) == maxExtents {
				return d, fmt.Errorf("the image has more than %d extents: %s", maxExtents, adviceConvert)
			}
			e, err := parseExtent(rest)
			if err != nil {
				return d, err
			}
			d.extents = append(d.extents, e)
			continue
		}
		if err := d.set(line); err != nil {
			return d, err
		}
	}
	return d, nil
}

// set takes a line of the form key=value. Most keys say nothing about the content.
func (d *descriptor) set(line string) (err error) {
	key, value, _ := strings.Cut(line, "=")
	value = strings.Trim(strings.TrimSpace(value), `"`)
	switch strings.TrimSpace(key) {
	case "parentCID":
		if d.parentID, err = strconv.ParseUint(value, 16, 32); err != nil {
			return chunked.Damaged("the parentCID of its descriptor is %q", value)
		}
	case "parentFileNameHint":
		d.parentName = value
	}
	return nil
}

// parseExtent parses what follows the access of an extent: sectors, type, name in quotes, and offset.
func parseExtent(line string) (extentLine, error) {
	size, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	kind, rest, _ := strings.Cut(strings.TrimSpace(rest), " ")
	e := extentLine{kind: kind}
	var err error
	if e.bytes, err = parseSectors(size); err != nil || e.bytes == 0 {
		return e, chunked.Damaged("an extent of its descriptor has %q sectors", size)
	}
	quoted, isNamed := strings.CutPrefix(strings.TrimSpace(rest), `"`)
	if !isNamed {
		return e, nil
	}
	name, offset, isClosed := strings.Cut(quoted, `"`)
	if e.name = name; !isClosed {
		return e, chunked.Damaged("the name of an extent of its descriptor has no end")
	}
	if offset, _, _ = strings.Cut(strings.TrimSpace(offset), " "); offset != "" {
		if e.offset, err = parseSectors(offset); err != nil {
			return e, chunked.Damaged("the data of extent %q is at %q", name, offset)
		}
	}
	return e, nil
}

var errSectors = errors.New("not a number of sectors")

// parseSectors returns a number of sectors in bytes.
func parseSectors(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n > chunked.MaxDiskBytes/sectorBytes {
		return 0, errSectors
	}
	return int64(n) * sectorBytes, nil
}

// checkParent refuses a snapshot.
func (d *descriptor) checkParent() error {
	if d.parentID == noParent {
		return nil
	}
	return fmt.Errorf("it is a snapshot, which has only the changes to %q: %s, or scan the image without snapshots",
		d.parentName, adviceConvert)
}
