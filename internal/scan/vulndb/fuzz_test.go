package vulndb

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"
)

// FuzzRead opens changed files with recomputed checksums, so that the content of blocks is tested.
func FuzzRead(f *testing.F) {
	f.Add(write(f, some()))
	f.Add(write(f, content{}))
	f.Add([]byte(magic))
	earlier, err := os.ReadFile(earlierFile) // its blocks are not compressed
	check(f, err)
	f.Add(earlier)
	f.Fuzz(func(t *testing.T, b []byte) {
		mend(b)
		db, err := NewDB(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		_, _ = db.Advisories(Go, "example.org/mod")
		_, _ = collectAll(db.EachApplicability("apple", "mac_os"))
		_, _, _ = db.Vulnerability("CVE-2020-0001")
		_, _, _ = db.Description("CVE-2020-0001")
		_, _ = db.AffectedCode("GO-2020-0001", "example.org/mod")
		_, _ = db.ProductVendors("mac_os")
		for _, err := range db.AllAdvisories() {
			if err != nil {
				break
			}
		}
		for _, err := range db.scanApplicabilities(nil) {
			if err != nil {
				break
			}
		}
	})
}

// mend recomputes the checksums of a file as far as its parts can be found.
func mend(b []byte) {
	if len(b) < headerSize {
		return
	}
	h := header{
		schema:          Schema,
		fileSize:        int64(len(b)),
		directoryOffset: int64(binary.LittleEndian.Uint64(b[24:])),
	}
	if h.directoryOffset < headerSize || h.directoryOffset > h.fileSize ||
		h.fileSize-h.directoryOffset > maxDirectoryBytes {
		return
	}
	h.directoryLength = uint32(h.fileSize - h.directoryOffset)
	h.directoryChecksum = crc32.Checksum(b[h.directoryOffset:], castagnoli)
	copy(b, h.marshal())
	d, err := readDirectory(bytes.NewReader(b), h)
	if err != nil {
		return
	}
	for _, s := range d.Sections {
		mendTree(b, blockHandle{s.Root, s.Length}, 0)
	}
}

func mendTree(b []byte, p blockHandle, depth int) {
	if depth > 3 || p.offset < headerSize || p.length <= checksumSize || p.offset > int64(len(b))-p.length {
		return
	}
	block := b[p.offset : p.offset+p.length]
	binary.LittleEndian.PutUint32(block, crc32.Checksum(block[checksumSize:], castagnoli))
	if block[checksumSize]&^compressedBlock == 0 {
		return
	}
	c := cursor{remaining: block[checksumSize+1:]}
	for n := 0; n < 4 && c.next(); n++ {
		if child, ok := parseBlockHandle(c.value); ok {
			mendTree(b, child, depth+1)
		}
	}
}

// FuzzRecords decodes bytes as each kind of record.
func FuzzRecords(f *testing.F) {
	c := some()
	in := func(string) uint64 { return 0 }
	for i := range 2 {
		var v, a, p encoder
		v.vulnerability(in, c.vulnerabilities[i])
		a.advisory(in, c.advisories[i])
		p.applicability(in, c.applicabilities[i].a, "")
		f.Add(v.buf)
		f.Add(a.buf)
		f.Add(p.buf)
	}
	res := func(uint64) (string, error) { return "text", nil }
	f.Fuzz(func(_ *testing.T, b []byte) {
		newDecoder(b).vulnerability(res, "CVE-2020-0001")
		newDecoder(b).advisory(res)
		newDecoder(b).applicability(res, "CVE-2020-0001", "cpe:2.3:a:apple:mac_os")
		newDecoder(b).description("CVE-2020-0001")
		newDecoder(b).affectedCode()
	})
}
