package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// The form of etcd's log (go.etcd.io/etcd/server/v3/storage/wal): frames of a length and a record, padded to 8 bytes.
// A record has a type, a checksum over all data of the log so far, and data.
const (
	frameHead  = 8
	sectorSize = 512 // what a disk writes as a whole

	logMetadata, logEntry, logState_, logChecksum, logSnapshot = 1, 2, 3, 4, 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type snapshotID struct{ term, index uint64 }

// logState is the state that the records of a log add up to.
type logState struct {
	file      string // the last one
	begun     bool
	sum       uint32 // running checksum
	entries   bool
	last      uint64 // index of the last entry
	snapshot  uint64 // index of the newest snapshot
	snapshots []snapshotID
}

// errTorn means that a log ends in the middle of a record.
var errTorn = errors.New("the log file ends in the middle of a record")

// checkLogs reads all files of a log.
func checkLogs(dir string) (s logState, err error) {
	names := filesOf(dir, "*.wal")
	var before uint64
	for i, path := range names {
		var seq, first uint64
		if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &seq, &first); err != nil {
			return s, &DamagedError{path, errors.New("the file does not have the name of a log file")}
		}
		if i > 0 && seq != before+1 {
			return s, &DamagedError{path, fmt.Errorf("the previous log file, number %d, is missing", before+1)}
		}
		before, s.file = seq, path
		data, err := os.ReadFile(path)
		if err != nil {
			return s, fmt.Errorf("log: %w", err)
		}
		if err := s.read(data); err != nil && (i < len(names)-1 || !errors.Is(err, errTorn)) {
			return s, &DamagedError{path, err}
		}
	}
	return s, nil
}

// read reads the records of one file.
func (s *logState) read(data []byte) error {
	for at := 0; at < len(data); {
		rest := data[at:]
		if len(rest) < frameHead || binary.LittleEndian.Uint64(rest) == 0 {
			return s.end(data, at)
		}
		size, ok := frameSize(rest)
		if !ok {
			return s.broken(data, at, len(data)-at)
		}
		r, n, _ := parseRecord(rest[frameHead:]) // n is 0 where there is none
		if n != size || r.kind != logChecksum && r.sum != crc32.Update(s.sum, castagnoli, r.data) {
			return s.broken(data, at, frameLength(size))
		}
		if err := s.record(r); err != nil {
			return fmt.Errorf("%w (at byte %d)", err, at)
		}
		at += frameLength(size)
	}
	return nil
}

// end checks what follows the last record: nothing, or zeros that were allocated.
func (s *logState) end(data []byte, at int) error {
	if allZero(data[at:]) {
		return nil
	}
	return s.broken(data, at, frameHead)
}

// broken classifies a frame that cannot be read: a crash leaves sectors of it that were never
// written. A change of its length alone leaves a record whose checksum is right.
func (s *logState) broken(data []byte, at, length int) error {
	damage := fmt.Errorf("unreadable record at byte %d", at)
	if at+frameHead >= len(data) {
		return errTorn
	}
	r, _, ok := parseRecord(data[at+frameHead:])
	if ok && r.sum == crc32.Update(s.sum, castagnoli, r.data) {
		return damage
	}
	for from := at; from < at+length; {
		to := min(from-from%sectorSize+sectorSize, len(data))
		if allZero(data[from:to]) {
			return errTorn
		}
		from = to
	}
	return damage
}

// frameSize returns the bytes of the record in a frame that begins data; not ok: etcd writes no
// such length, or it is longer than the file.
func frameSize(data []byte) (size int, ok bool) {
	head := binary.LittleEndian.Uint64(data)
	size = int(head &^ (0xff << 56))
	pad := frameLength(size) - frameHead - size
	want := byte(0)
	if pad > 0 {
		want = 0x80 | byte(pad)
	}
	return size, byte(head>>56) == want && frameLength(size) <= len(data)
}

// frameLength returns the bytes of a whole frame.
func frameLength(size int) int { return frameHead + (size+7)/8*8 }

type logRecord struct {
	kind uint64
	sum  uint32
	data []byte
}

// parseRecord parses the record that begins b, and returns its length, which its frame has too.
func parseRecord(b []byte) (r logRecord, n int, ok bool) {
	var sum uint64
	for _, field := range []struct {
		tag byte
		to  *uint64
	}{{0x08, &r.kind}, {0x10, &sum}} {
		if n >= len(b) || b[n] != field.tag {
			return r, 0, false
		}
		value, size := protowire.ConsumeVarint(b[n+1:])
		if size < 0 {
			return r, 0, false
		}
		*field.to, n = value, n+1+size
	}
	if sum > 0xffffffff {
		return r, 0, false
	}
	r.sum = uint32(sum)
	if n < len(b) && b[n] == 0x1a {
		data, size := protowire.ConsumeBytes(b[n+1:])
		if size < 0 {
			return r, 0, false
		}
		r.data, n = data, n+1+size
	}
	return r, n, true
}

// record applies one record whose checksum is right; the checksum covers its data alone.
func (s *logState) record(r logRecord) error {
	if r.kind == logChecksum {
		if s.begun && r.sum != s.sum {
			return errors.New("the log file does not continue the previous one")
		}
		s.sum, s.begun = r.sum, true
		return nil
	}
	s.sum = crc32.Update(s.sum, castagnoli, r.data)
	fields, err := varints(r.data)
	switch {
	case r.kind == logMetadata:
		return nil
	case err != nil:
		return errors.New("malformed record")
	case r.kind == logEntry:
		return s.entry(fields)
	case r.kind == logState_:
		return nil
	case r.kind == logSnapshot:
		s.snapshots = append(s.snapshots, snapshotID{index: fields[1], term: fields[2]})
		s.snapshot = max(s.snapshot, fields[1])
		if !s.entries {
			s.last = max(s.last, fields[1])
		}
		return nil
	}
	return fmt.Errorf("record of unknown kind %d", r.kind)
}

// entry checks the index of an entry. A single member never takes an entry back.
func (s *logState) entry(fields map[protowire.Number]uint64) error {
	index := fields[3]
	if s.entries && index != s.last+1 {
		return fmt.Errorf("entry %d follows entry %d, want consecutive numbers", index, s.last)
	}
	s.entries, s.last = true, index
	return nil
}

// varints returns the numeric fields of a message; other fields are left out.
func varints(data []byte) (map[protowire.Number]uint64, error) {
	fields := map[protowire.Number]uint64{}
	for len(data) > 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, kind, data[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if kind == protowire.VarintType {
			fields[num], _ = protowire.ConsumeVarint(data[n:])
		}
		data = data[n+size:]
	}
	return fields, nil
}

var zeros [64 << 10]byte

func allZero(data []byte) bool {
	for len(data) > len(zeros) {
		if !bytes.Equal(data[:len(zeros)], zeros[:]) {
			return false
		}
		data = data[len(zeros):]
	}
	return bytes.Equal(data, zeros[:len(data)])
}
