package ova

import (
	"archive/tar"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

// Archive is an appliance.
type Archive struct {
	files       map[string]*io.SectionReader // by their names; nil: sparse, which cannot be read in place
	description *io.SectionReader
}

// IsArchive reports whether a file of size bytes is a tar archive whose first file is a description.
func IsArchive(r io.ReaderAt, size int64) bool {
	b := make([]byte, blockBytes)
	if n, _ := r.ReadAt(b, 0); n < len(b) || string(b[magicAt:magicAt+len(magic)]) != magic {
		return false
	}
	h, err := tar.NewReader(io.NewSectionReader(r, 0, size)).Next()
	return err == nil && isDescription(h)
}

func isDescription(h *tar.Header) bool {
	return h.Typeflag == tar.TypeReg && strings.EqualFold(path.Ext(h.Name), ".ovf")
}

// Open reads the list of files.
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	a := &Archive{files: map[string]*io.SectionReader{}}
	section := io.NewSectionReader(r, 0, size)
	for t := tar.NewReader(section); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && a.description != nil {
			return a, nil
		}
		if err == nil && len(a.files) == maxFiles {
			err = fmt.Errorf("it has more than %d files", maxFiles)
		}
		if err != nil {
			return nil, chunked.Damaged("the archive: %v", err)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
			continue
		}
		at, err := section.Seek(0, io.SeekCurrent) // the reader has read the headers and nothing else
		if err != nil {
			return nil, err
		}
		if err := a.add(h, r, at, size); err != nil {
			return nil, err
		}
	}
}

// add adds a file whose bytes begin at an offset of an archive of size bytes.
func (a *Archive) add(h *tar.Header, r io.ReaderAt, at, size int64) error {
	name := path.Clean(h.Name)
	if _, isKnown := a.files[name]; isKnown {
		return chunked.Damaged("the archive has two files %q", name)
	}
	if isSparse(h) {
		a.files[name] = nil
		return nil
	}
	if h.Size > size-at {
		return chunked.Damaged("the archive ends within %q", name)
	}
	a.files[name] = io.NewSectionReader(r, at, h.Size)
	if a.description == nil && isDescription(h) {
		a.description = a.files[name]
	}
	return nil
}

// isSparse reports whether the holes of a file are not in the archive.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// File returns a file of the archive.
func (a *Archive) File(name string) (*io.SectionReader, error) {
	f, isKnown := a.files[path.Clean(name)]
	switch {
	case !isKnown:
		return nil, fmt.Errorf("the archive has no file %q", name)
	case f == nil:
		return nil, fmt.Errorf("file %q of the archive is stored without its holes: unpack it", name)
	}
	return f, nil
}

// envelope has the elements of a description that name disks. Elements are matched by their local names: the
// namespaces of versions differ.
type envelope struct {
	XMLName xml.Name `xml:"Envelope"`
	Files   []struct {
		ID          string `xml:"id,attr"`
		Name        string `xml:"href,attr"`
		Compression string `xml:"compression,attr"`
		ChunkBytes  string `xml:"chunkSize,attr"`
	} `xml:"References>File"`
	Disks []struct {
		ID     string `xml:"diskId,attr"`
		File   string `xml:"fileRef,attr"`
		Parent string `xml:"parentRef,attr"`
	} `xml:"DiskSection>Disk"`
}

// Disks returns the disks that the description names. One without a file is an empty disk, and left out.
func (a *Archive) Disks() ([]Disk, error) {
	if a.description.Size() > maxDescriptionBytes {
		return nil, chunked.Damaged("the description has %d bytes", a.description.Size())
	}
	var e envelope
	text := io.NewSectionReader(a.description, 0, a.description.Size())
	if err := xml.NewDecoder(text).Decode(&e); err != nil {
		return nil, chunked.Damaged("the description: %v", err)
	}
	if len(e.Disks) > maxDisks {
		return nil, fmt.Errorf("the description names more than %d disks", maxDisks)
	}
	var out []Disk
	for _, d := range e.Disks {
		if d.File == "" {
			continue
		}
		disk := Disk{Name: d.ID, Reason: "the description names no file for it"}
		for _, f := range e.Files {
			if f.ID != d.File {
				continue
			}
			disk.Name = f.Name
			disk.File, disk.Reason = a.diskFile(f.Name, f.Compression, f.ChunkBytes, d.Parent)
			break
		}
		out = append(out, disk)
	}
	return out, nil
}

// diskFile returns the file of a disk, or why it cannot be read.
func (a *Archive) diskFile(name, compression, chunkBytes, parent string) (*io.SectionReader, string) {
	switch {
	case compression != "" && compression != "identity":
		return nil, fmt.Sprintf("its file is compressed with %q: unpack it", compression)
	case chunkBytes != "":
		return nil, "its file is in several parts: unpack and join them"
	case parent != "":
		return nil, "it has only the changes to another disk of the appliance: export the VM without snapshots"
	}
	f, err := a.File(name)
	if plain, e := url.PathUnescape(name); err != nil && e == nil && plain != name {
		// References are URLs, in which a space is %20. Not every program writes them so.
		if f, err := a.File(plain); err == nil {
			return f, ""
		}
	}
	if err != nil {
		return nil, err.Error()
	}
	return f, ""
}
