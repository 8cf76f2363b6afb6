package vulndb

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Schema is the version of the file format that is written. A program reads files of that version and of earlier ones,
// and refuses newer ones. Blocks may be compressed from 2 on.
const Schema = 2

// MinSchema is the earliest version that is read.
const MinSchema = 1

const (
	magic             = "\x89BYVDB\r\n" // detects a transfer in text mode
	headerSize        = 64
	maxDirectoryBytes = 1 << 20
	checksumSize      = 4
	headerChecksum    = headerSize - checksumSize
	minFileBytes      = headerSize + 2 // header and an empty directory
)

// Errors of Open and of reads for invalid files; match them with errors.Is.
var (
	ErrNotDatabase = errors.New("not a vulnerability database")
	ErrNewerSchema = errors.New("the vulnerability database requires a newer version of this program")
	ErrDamaged     = errors.New("the vulnerability database is damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Info describes the content and the sources of a database.
type Info struct {
	Schema  int
	Built   time.Time
	Sources []SourceInfo // sorted by name
	Size    int64        // bytes of the file

	Advisories, Applicabilities, Vulnerabilities int
}

// SourceInfo is one source of a database.
type SourceInfo struct {
	Name     string    `json:"name"`
	Date     time.Time `json:"date,omitzero"` // of its newest record; zero is unknown
	Records  int       `json:"records"`       // that were used
	Rejected int       `json:"rejected,omitempty"`
}

// header is the fixed part at the beginning of the file:
//
//	0  magic       8 bytes
//	8  schema      uint32, little endian as all that follow
//	12 zero        uint32
//	16 size        uint64, of the whole file
//	24 directory   uint64, where it begins
//	32 its length  uint32
//	36 its CRC-32C uint32
//	40 zero        20 bytes
//	60 CRC-32C     uint32, of the bytes before it
type header struct {
	schema                             int
	fileSize, directoryOffset          int64
	directoryLength, directoryChecksum uint32
}

// directory is the last part of the file: its metadata and the offsets of its trees.
type directory struct {
	Built    time.Time                    `json:"built"`
	Sources  []SourceInfo                 `json:"sources"`
	Sections map[sectionName]treeLocation `json:"sections"`
}

type sectionName string

// The sections of a file, in the order in which they are written.
const (
	vulnerabilitySection sectionName = "vulnerabilities"
	applicabilitySection sectionName = "applicabilities"
	advisorySection      sectionName = "advisories"
	codeSection          sectionName = "code"     // missing in some files of schema 1
	productNameSection   sectionName = "products" // likewise
	descriptionSection   sectionName = "descriptions"
	textSection          sectionName = "texts" // groups of descriptions, in some files of schema 1
	stringSection        sectionName = "strings"
)

var sectionOrder = []sectionName{
	vulnerabilitySection, applicabilitySection, advisorySection, codeSection, productNameSection, descriptionSection,
	textSection, stringSection,
}

// treeLocation is the location of a tree of blocks. An empty tree has no entries and no root.
type treeLocation struct {
	Begin   int64 `json:"begin"` // of its first block
	Root    int64 `json:"root"`
	Length  int64 `json:"length"` // of the root block
	Entries int   `json:"entries"`
}

func (h header) marshal() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.schema))
	binary.LittleEndian.PutUint64(b[16:], uint64(h.fileSize))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.directoryOffset))
	binary.LittleEndian.PutUint32(b[32:], h.directoryLength)
	binary.LittleEndian.PutUint32(b[36:], h.directoryChecksum)
	binary.LittleEndian.PutUint32(b[headerChecksum:], crc32.Checksum(b[:headerChecksum], castagnoli))
	return b
}

// readHeader reads the header of a file of the given size.
func readHeader(r io.ReaderAt, size int64) (header, error) {
	b := make([]byte, headerSize)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, err
	}
	if n < len(magic) || string(b[:len(magic)]) != magic {
		return header{}, ErrNotDatabase
	}
	if n < headerSize || size < minFileBytes {
		return header{}, fmt.Errorf("%w: it is truncated after %d bytes", ErrDamaged, size)
	}
	schema := binary.LittleEndian.Uint32(b[8:])
	if schema > Schema {
		return header{}, fmt.Errorf("%w: the file has schema %d, this program supports up to %d; update this program",
			ErrNewerSchema, schema, Schema)
	}
	if schema < MinSchema {
		return header{}, fmt.Errorf("%w: unknown schema %d", ErrDamaged, schema)
	}
	if binary.LittleEndian.Uint32(b[headerChecksum:]) != crc32.Checksum(b[:headerChecksum], castagnoli) {
		return header{}, fmt.Errorf("%w: checksum mismatch in the header", ErrDamaged)
	}
	h := header{
		schema:            int(schema),
		fileSize:          int64(binary.LittleEndian.Uint64(b[16:])),
		directoryOffset:   int64(binary.LittleEndian.Uint64(b[24:])),
		directoryLength:   binary.LittleEndian.Uint32(b[32:]),
		directoryChecksum: binary.LittleEndian.Uint32(b[36:]),
	}
	if h.fileSize != size {
		return header{}, fmt.Errorf("%w: it has %d bytes instead of %d", ErrDamaged, size, h.fileSize)
	}
	if h.directoryLength > maxDirectoryBytes || h.directoryOffset < headerSize ||
		h.directoryOffset != size-int64(h.directoryLength) {
		return header{}, fmt.Errorf("%w: its directory is outside of the file", ErrDamaged)
	}
	return h, nil
}

// readDirectory reads the directory that the header points to.
func readDirectory(r io.ReaderAt, h header) (directory, error) {
	var d directory
	b := make([]byte, h.directoryLength)
	if _, err := r.ReadAt(b, h.directoryOffset); err != nil && !errors.Is(err, io.EOF) {
		return d, err
	}
	if crc32.Checksum(b, castagnoli) != h.directoryChecksum {
		return d, fmt.Errorf("%w: checksum mismatch in its directory", ErrDamaged)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		return d, fmt.Errorf("%w: parse its directory: %w", ErrDamaged, err)
	}
	for name, s := range d.Sections {
		if s.Entries < 0 || s.Entries > 0 && (s.Begin < headerSize || s.Root < s.Begin || s.Length <= checksumSize ||
			s.Length > maxBlockBytes || s.Root > h.directoryOffset-s.Length) {
			return d, fmt.Errorf("%w: its section %q is outside of the file", ErrDamaged, name)
		}
	}
	return d, nil
}

// HasMagic reports whether a file with these first bytes may be a database.
func HasMagic(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }
