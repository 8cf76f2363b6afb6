package blob

import (
	"encoding/binary"
	"hash/crc32"
)

// FooterSize is the number of bytes that end a layer file.
const FooterSize = 64

const (
	footerVersion = 1
	footerMagic   = "BYLAYER\n"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Footer contains the range of the index in a layer file.
type Footer struct {
	IndexOffset int64
	IndexLength int64
	Digest      Digest
}

// Footer is the footer of the index's layer file.
func (x *Index) Footer() Footer {
	return Footer{IndexOffset: x.storedBytes, IndexLength: int64(len(x.encoded)), Digest: x.digest}
}

// IndexAndFooter returns the bytes that follow the frames in a layer file: index and footer.
func (x *Index) IndexAndFooter() []byte {
	return x.Footer().appendTo(append([]byte(nil), x.encoded...))
}

func (f Footer) appendTo(b []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.IndexOffset))
	b = binary.LittleEndian.AppendUint64(b, uint64(f.IndexLength))
	b = append(b, f.Digest[:]...)
	b = binary.LittleEndian.AppendUint32(b, footerVersion)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return append(b, footerMagic...)
}

// ParseFooter reads the last FooterSize bytes of a layer file of size bytes.
func ParseFooter(b []byte, size int64) (Footer, error) {
	var f Footer
	if len(b) != FooterSize || size < FooterSize || string(b[56:]) != footerMagic {
		return f, corrupt("no layer file: its footer is missing")
	}
	if binary.LittleEndian.Uint32(b[52:]) != crc32.Checksum(b[:52], castagnoli) {
		return f, corrupt("checksum of the footer")
	}
	if v := binary.LittleEndian.Uint32(b[48:]); v != footerVersion {
		return f, corrupt("layer format %d is not known", v)
	}
	offset, length := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
	room := uint64(size) - FooterSize
	if offset > room || length != room-offset || length == 0 || length > MaxIndexSize {
		return f, corrupt("footer points outside of the file")
	}
	copy(f.Digest[:], b[16:48])
	f.IndexOffset, f.IndexLength = int64(offset), int64(length)
	return f, nil
}
