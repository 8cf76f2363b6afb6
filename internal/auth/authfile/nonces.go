package authfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
)

// Marks are kept in logs of records, 32 bytes each: the mark, when it may be forgotten in
// seconds, four bytes of nothing, and a checksum of all that. A log is never written to
// after a restart or a failure, so that a torn record has nothing behind it.
const (
	markPrefix = "marks-"
	markSuffix = ".log"
	recordSize = 32
	recordSum  = recordSize - 4
	logAge     = 5 * time.Minute // after which the next log begins, so that old ones can go
	maxLog     = 64 << 20        // bytes
)

// castagnoli has an instruction in most processors.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Nonces remember used secrets in a Directory. All calls that come while the disk is written
// share the next write.
type Nonces struct {
	folder *Dir
	table  auth.MemoryNonces // what is used, durable or about to be

	mu      sync.Mutex // guards what follows
	next    *batch     // what is written next
	writing bool
	closed  bool
	logs    []*nonceLog // the last is the one that is written; held by the writer
}

var _ auth.NonceStore = (*Nonces)(nil)

// batch is nonces that are written together.
type batch struct {
	records []byte
	last    time.Time // until when one of them counts
	done    chan struct{}
	err     error
}

// nonceLog is one file.
type nonceLog struct {
	name  string
	file  *os.File // nil: nothing more is written to it
	begun time.Time
	until time.Time // when all its marks may be forgotten
}

// OpenNonces opens the used nonces. Records that a crash has cut off were never acknowledged.
func (f *Dir) OpenNonces() (*Nonces, error) {
	m := &Nonces{folder: f, next: newBatch()}
	names, err := f.names(markPrefix)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		log, err := m.load(name)
		if err != nil {
			return nil, err
		}
		m.logs = append(m.logs, log)
	}
	m.forget(time.Now())
	return m, nil
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// load reads the nonces of a log.
func (m *Nonces) load(name string) (*nonceLog, error) {
	raw, err := m.folder.read(name, maxLog)
	if err != nil {
		return nil, err
	}
	log := &nonceLog{name: name}
	for ; len(raw) >= recordSize; raw = raw[recordSize:] {
		mark, until, ok := parseRecord(raw[:recordSize])
		if !ok {
			continue
		}
		if _, err := m.table.Use(context.Background(), mark, until); err != nil {
			return nil, err
		}
		if until.After(log.until) {
			log.until = until
		}
	}
	return log, nil
}

func appendRecord(to []byte, mark auth.Nonce, until time.Time) []byte {
	start := len(to)
	to = append(to, mark[:]...)
	to = binary.BigEndian.AppendUint64(to, uint64(until.Unix()))
	to = append(to, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint32(to, crc32.Checksum(to[start:], castagnoli))
}

func parseRecord(raw []byte) (mark auth.Nonce, until time.Time, ok bool) {
	if binary.BigEndian.Uint32(raw[recordSum:]) != crc32.Checksum(raw[:recordSum], castagnoli) {
		return mark, until, false
	}
	n := copy(mark[:], raw)
	return mark, time.Unix(int64(binary.BigEndian.Uint64(raw[n:])), 0), true
}

// Use implements auth.NonceStore.
func (m *Nonces) Use(ctx context.Context, mark auth.Nonce, until time.Time) (bool, error) {
	if first, err := m.table.Use(ctx, mark, until); !first || err != nil {
		return false, err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false, errClosed
	}
	b := m.next
	b.records = appendRecord(b.records, mark, until)
	if until.After(b.last) {
		b.last = until
	}
	if !m.writing {
		m.writing = true
		go m.write()
	}
	m.mu.Unlock()
	select {
	case <-b.done:
		return b.err == nil, b.err
	case <-ctx.Done():
		return false, ctx.Err() // it stays used
	}
}

var errClosed = errors.New("the store of used nonces is closed")

// write writes batches until there are none.
func (m *Nonces) write() {
	for {
		m.mu.Lock()
		b := m.next
		if len(b.records) == 0 {
			m.writing = false
			if m.closed {
				close(b.done)
			}
			m.mu.Unlock()
			return
		}
		m.next = newBatch()
		m.mu.Unlock()
		b.err = m.commit(b)
		close(b.done)
	}
}

// commit makes a batch durable.
func (m *Nonces) commit(b *batch) error {
	now := time.Now()
	m.forget(now)
	log, err := m.open(now)
	if err != nil {
		return err
	}
	if b.last.After(log.until) {
		log.until = b.last
	}
	m.folder.step("append")
	_, err = log.file.Write(b.records)
	if err == nil {
		m.folder.step("logsync")
		err = log.file.Sync()
	}
	if err != nil {
		_ = log.file.Close()
		log.file = nil // its end may be torn
		return fmt.Errorf("store used nonces: %w", err)
	}
	return nil
}

// open returns the log to write to.
func (m *Nonces) open(now time.Time) (*nonceLog, error) {
	if n := len(m.logs); n > 0 && m.logs[n-1].file != nil {
		last := m.logs[n-1]
		if now.Sub(last.begun) < logAge {
			return last, nil
		}
		_ = last.file.Close() // all of it is synced
		last.file = nil
	}
	m.folder.step("logcreate")
	name := markPrefix + strconv.FormatInt(now.UnixNano(), 36) + markSuffix
	file, err := m.folder.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store used nonces: %w", err)
	}
	m.folder.step("logdirsync")
	if err := m.folder.sync(); err != nil {
		_ = file.Close()
		_ = m.folder.root.Remove(name) // it is empty
		return nil, err
	}
	log := &nonceLog{name: name, file: file, begun: now}
	m.logs = append(m.logs, log)
	return log, nil
}

// forget removes the logs whose nonces have all expired.
func (m *Nonces) forget(now time.Time) {
	kept := m.logs[:0]
	for _, log := range m.logs {
		if log.file != nil || log.until.After(now) {
			kept = append(kept, log)
			continue
		}
		m.folder.step("logremove")
		if err := m.folder.root.Remove(log.name); err != nil && !errors.Is(err, os.ErrNotExist) {
			kept = append(kept, log)
		}
	}
	m.logs = kept
}

// Close waits for the write in progress.
func (m *Nonces) Close() error {
	m.mu.Lock()
	m.closed = true
	last, writing := m.next.done, m.writing
	m.mu.Unlock()
	if writing {
		<-last
	}
	for _, log := range m.logs {
		if log.file != nil {
			_ = log.file.Close()
			log.file = nil
		}
	}
	return nil
}
