package rpm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
)

// The write-ahead log of SQLite (https://www.sqlite.org/walformat.html) has the newest pages of a database that a
// program has open, or had when its machine stopped. A frame is a page with its number.
const (
	logMagic      = 0x377f0682 // with checksums of little-endian numbers; the next number: big-endian
	logHeaderSize = 32
	logFrameSize  = 24
	maxLogBytes   = 32 << 20
	logSuffix     = "-wal" // of its name after that of the database
)

// sqliteLog are the pages of a log.
type sqliteLog struct {
	data      []byte
	offsets   map[uint32]int // of the newest version of each page
	pageSize  int
	pageCount uint32 // of the database with the log
}

// openLog returns a function that reads the log of a database. A missing one is empty.
func openLog(readFile func(name string, limit int64) ([]byte, error), database string) func() ([]byte, error) {
	return func() ([]byte, error) {
		data, err := readFile(database+logSuffix, maxLogBytes)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("the packages are older than its log, which cannot be read: %w", err)
		}
		return data, nil
	}
}

// page returns a page of the log and a number below frames that no other has; nil when the log does not have it.
func (l *sqliteLog) page(n uint32) ([]byte, int64) {
	if l == nil {
		return nil, 0
	}
	off, ok := l.offsets[n]
	if !ok {
		return nil, 0
	}
	return l.data[off:][:l.pageSize], int64(off / l.pageSize)
}

// frames returns how many frames fit in the log, with those of unfinished transactions.
func (l *sqliteLog) frames() int64 {
	if l == nil {
		return 0
	}
	return int64(len(l.data) / l.pageSize)
}

// parseLog reads the frames of finished transactions. It returns nil for a log without any, and for one of another
// database.
func parseLog(data []byte, pageSize int) *sqliteLog {
	if len(data) < logHeaderSize {
		return nil
	}
	magic := binary.BigEndian.Uint32(data)
	if magic&^1 != logMagic || int(binary.BigEndian.Uint32(data[8:])) != pageSize {
		return nil
	}
	sum := logSum{order: binary.LittleEndian}
	if magic&1 != 0 {
		sum.order = binary.BigEndian
	}
	if sum.add(data[:24]); !sum.equals(data[24:]) {
		return nil
	}
	l := &sqliteLog{data: data, offsets: map[uint32]int{}, pageSize: pageSize}
	salt := string(data[16:24])
	pending := map[uint32]int{}
	for at := logHeaderSize; at+logFrameSize+pageSize <= len(data); at += logFrameSize + pageSize {
		frame := data[at:][:logFrameSize+pageSize]
		sum.add(frame[:8])
		if sum.add(frame[logFrameSize:]); string(frame[8:16]) != salt || !sum.equals(frame[16:]) {
			break
		}
		pending[binary.BigEndian.Uint32(frame)] = at + logFrameSize
		if count := binary.BigEndian.Uint32(frame[4:]); count != 0 { // the last of a transaction
			maps.Copy(l.offsets, pending)
			clear(pending)
			l.pageCount = count
		}
	}
	if l.pageCount == 0 {
		return nil
	}
	return l
}

// logSum is the checksum of a log.
type logSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

// add adds data, whose size is a multiple of 8.
func (s *logSum) add(data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		s.s0 += s.order.Uint32(data) + s.s1
		s.s1 += s.order.Uint32(data[4:]) + s.s0
	}
}

func (s *logSum) equals(stored []byte) bool {
	return binary.BigEndian.Uint32(stored) == s.s0 && binary.BigEndian.Uint32(stored[4:]) == s.s1
}
