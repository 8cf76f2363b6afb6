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
	frameHeaderSize = 8
	sectorSize      = 512 // what a disk writes as a whole

	walMetadata, walEntry, walStateRecord, walChecksum, walSnapshot = 1, 2, 3, 4, 5
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type snapshotID struct{ term, index uint64 }

// walState is the state that the records of a log add up to.
type walState struct {
	lastFile      string // the last one
	hasBegun      bool
	checksum      uint32 // running checksum
	hasEntries    bool
	lastIndex     uint64 // index of the last entry
	snapshotIndex uint64 // index of the newest snapshot
	snapshots     []snapshotID
}

// errTornRecord means that a log ends in the middle of a record.
var errTornRecord = errors.New("the log file ends in the middle of a record")

// checkWAL reads all files of a log.
func checkWAL(dir string) (s walState, err error) {
	names := matchingFiles(dir, "*.wal")
	var before uint64
	for i, path := range names {
		var seq, first uint64
		if _, err := fmt.Sscanf(filepath.Base(path), "%016x-%016x.wal", &seq, &first); err != nil {
			return s, &DamagedError{path, errors.New("the file does not have the name of a log file")}
		}
		if i > 0 && seq != before+1 {
			return s, &DamagedError{path, fmt.Errorf("the previous log file, number %d, is missing", before+1)}
		}
		before, s.lastFile = seq, path
		data, err := os.ReadFile(path)
		if err != nil {
			return s, fmt.Errorf("log: %w", err)
		}
		if err := s.readFile(data); err != nil && (i < len(names)-1 || !errors.Is(err, errTornRecord)) {
			return s, &DamagedError{path, err}
		}
	}
	return s, nil
}

// readFile reads the records of one file.
func (s *walState) readFile(data []byte) error {
	for at := 0; at < len(data); {
		rest := data[at:]
		if len(rest) < frameHeaderSize || binary.LittleEndian.Uint64(rest) == 0 {
			return s.checkEnd(data, at)
		}
		size, ok := frameSize(rest)
		if !ok {
			return s.classifyBroken(data, at, len(data)-at)
		}
		r, n, _ := parseRecord(rest[frameHeaderSize:]) // n is 0 where there is none
		if n != size || r.kind != walChecksum && r.checksum != crc32.Update(s.checksum, castagnoli, r.data) {
			return s.classifyBroken(data, at, frameLength(size))
		}
		if err := s.applyRecord(r); err != nil {
			return fmt.Errorf("%w (at byte %d)", err, at)
		}
		at += frameLength(size)
	}
	return nil
}

// checkEnd checks what follows the last record: nothing, or zeros that were allocated.
func (s *walState) checkEnd(data []byte, at int) error {
	if allZero(data[at:]) {
		return nil
	}
	return s.classifyBroken(data, at, frameHeaderSize)
}

// classifyBroken classifies a frame that cannot be read: a crash leaves sectors of it that were never
// written. A change of its length alone leaves a record whose checksum is right.
func (s *walState) classifyBroken(data []byte, at, length int) error {
	damage := fmt.Errorf("unreadable record at byte %d", at)
	if at+frameHeaderSize >= len(data) {
		return errTornRecord
	}
	r, _, ok := parseRecord(data[at+frameHeaderSize:])
	if ok && r.checksum == crc32.Update(s.checksum, castagnoli, r.data) {
		return damage
	}
	for from := at; from < at+length; {
		to := min(from-from%sectorSize+sectorSize, len(data))
		if allZero(data[from:to]) {
			return errTornRecord
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
	pad := frameLength(size) - frameHeaderSize - size
	want := byte(0)
	if pad > 0 {
		want = 0x80 | byte(pad)
	}
	return size, byte(head>>56) == want && frameLength(size) <= len(data)
}

// frameLength returns the bytes of a whole frame.
func frameLength(size int) int { return frameHeaderSize + (size+7)/8*8 }

type walRecord struct {
	kind     uint64
	checksum uint32
	data     []byte
}

// parseRecord parses the record that begins b, and returns its length, which its frame has too.
func parseRecord(b []byte) (r walRecord, n int, ok bool) {
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
	r.checksum = uint32(sum)
	if n < len(b) && b[n] == 0x1a {
		data, size := protowire.ConsumeBytes(b[n+1:])
		if size < 0 {
			return r, 0, false
		}
		r.data, n = data, n+1+size
	}
	return r, n, true
}

// applyRecord applies one record whose checksum is right; the checksum covers its data alone.
func (s *walState) applyRecord(r walRecord) error {
	if r.kind == walChecksum {
		if s.hasBegun && r.checksum != s.checksum {
			return errors.New("the log file does not continue the previous one")
		}
		s.checksum, s.hasBegun = r.checksum, true
		return nil
	}
	s.checksum = crc32.Update(s.checksum, castagnoli, r.data)
	fields, err := parseVarints(r.data)
	switch {
	case r.kind == walMetadata:
		return nil
	case err != nil:
		return errors.New("malformed record")
	case r.kind == walEntry:
		return s.applyEntry(fields)
	case r.kind == walStateRecord:
		return nil
	case r.kind == walSnapshot:
		s.snapshots = append(s.snapshots, snapshotID{index: fields[1], term: fields[2]})
		s.snapshotIndex = max(s.snapshotIndex, fields[1])
		if !s.hasEntries {
			s.lastIndex = max(s.lastIndex, fields[1])
		}
		return nil
	}
	return fmt.Errorf("record of unknown kind %d", r.kind)
}

// applyEntry checks the index of an entry. A single member never takes an entry back.
func (s *walState) applyEntry(fields map[protowire.Number]uint64) error {
	index := fields[3]
	if s.hasEntries && index != s.lastIndex+1 {
		return fmt.Errorf("entry %d follows entry %d, want consecutive numbers", index, s.lastIndex)
	}
	s.hasEntries, s.lastIndex = true, index
	return nil
}

// parseVarints returns the numeric fields of a message; other fields are left out.
func parseVarints(data []byte) (map[protowire.Number]uint64, error) {
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

var zeroBytes [64 << 10]byte

func allZero(data []byte) bool {
	for len(data) > len(zeroBytes) {
		if !bytes.Equal(data[:len(zeroBytes)], zeroBytes[:]) {
			return false
		}
		data = data[len(zeroBytes):]
	}
	return bytes.Equal(data, zeroBytes[:len(data)])
}
