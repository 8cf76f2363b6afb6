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
	noncePrefix     = "marks-"
	nonceSuffix     = ".log"
	recordSize      = 32
	recordSumOffset = recordSize - 4
	logAge          = 5 * time.Minute // after which the next log begins, so that old ones can go
	maxLogBytes     = 64 << 20        // bytes
)

// castagnoli has an instruction in most processors.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Nonces remember used secrets in a Directory. All calls that come while the disk is written
// share the next write.
type Nonces struct {
	dir  *Dir
	used auth.MemoryNonces // what is used, durable or about to be

	mu        sync.Mutex  // guards the fields below
	nextBatch *nonceBatch // what is written next
	writing   bool
	closed    bool
	logs      []*nonceLog // the last is the one that is written; held by the writer
}

var _ auth.NonceStore = (*Nonces)(nil)

// nonceBatch is nonces that are written together.
type nonceBatch struct {
	records    []byte
	lastExpiry time.Time // until when one of them counts
	done       chan struct{}
	err        error
}

// nonceLog is one file.
type nonceLog struct {
	name      string
	file      *os.File // nil: nothing more is written to it
	startedAt time.Time
	expiresAt time.Time // when all its marks may be forgotten
}

// OpenNonces opens the used nonces. Records that a crash has cut off were never acknowledged.
func (f *Dir) OpenNonces() (*Nonces, error) {
	m := &Nonces{dir: f, nextBatch: newBatch()}
	names, err := f.filesWithPrefix(noncePrefix)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		log, err := m.loadLog(name)
		if err != nil {
			return nil, err
		}
		m.logs = append(m.logs, log)
	}
	m.pruneLogs(time.Now())
	return m, nil
}

func newBatch() *nonceBatch { return &nonceBatch{done: make(chan struct{})} }

// loadLog reads the nonces of a log.
func (m *Nonces) loadLog(name string) (*nonceLog, error) {
	raw, err := m.dir.readFile(name, maxLogBytes)
	if err != nil {
		return nil, err
	}
	log := &nonceLog{name: name}
	for ; len(raw) >= recordSize; raw = raw[recordSize:] {
		mark, until, ok := parseRecord(raw[:recordSize])
		if !ok {
			continue
		}
		if _, err := m.used.Use(context.Background(), mark, until); err != nil {
			return nil, err
		}
		if until.After(log.expiresAt) {
			log.expiresAt = until
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
	if binary.BigEndian.Uint32(raw[recordSumOffset:]) != crc32.Checksum(raw[:recordSumOffset], castagnoli) {
		return mark, until, false
	}
	n := copy(mark[:], raw)
	return mark, time.Unix(int64(binary.BigEndian.Uint64(raw[n:])), 0), true
}

// Use implements auth.NonceStore.
func (m *Nonces) Use(ctx context.Context, mark auth.Nonce, until time.Time) (bool, error) {
	if first, err := m.used.Use(ctx, mark, until); !first || err != nil {
		return false, err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false, errClosed
	}
	b := m.nextBatch
	b.records = appendRecord(b.records, mark, until)
	if until.After(b.lastExpiry) {
		b.lastExpiry = until
	}
	if !m.writing {
		m.writing = true
		go m.writeLoop()
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

// writeLoop writes batches until there are none.
func (m *Nonces) writeLoop() {
	for {
		m.mu.Lock()
		b := m.nextBatch
		if len(b.records) == 0 {
			m.writing = false
			if m.closed {
				close(b.done)
			}
			m.mu.Unlock()
			return
		}
		m.nextBatch = newBatch()
		m.mu.Unlock()
		b.err = m.writeBatch(b)
		close(b.done)
	}
}

// writeBatch makes a batch durable.
func (m *Nonces) writeBatch(b *nonceBatch) error {
	now := time.Now()
	m.pruneLogs(now)
	log, err := m.currentLog(now)
	if err != nil {
		return err
	}
	if b.lastExpiry.After(log.expiresAt) {
		log.expiresAt = b.lastExpiry
	}
	m.dir.beforeStep("append")
	_, err = log.file.Write(b.records)
	if err == nil {
		m.dir.beforeStep("logsync")
		err = log.file.Sync()
	}
	if err != nil {
		_ = log.file.Close()
		log.file = nil // its end may be torn
		return fmt.Errorf("store used nonces: %w", err)
	}
	return nil
}

// currentLog returns the log to write to.
func (m *Nonces) currentLog(now time.Time) (*nonceLog, error) {
	if n := len(m.logs); n > 0 && m.logs[n-1].file != nil {
		last := m.logs[n-1]
		if now.Sub(last.startedAt) < logAge {
			return last, nil
		}
		_ = last.file.Close() // all of it is synced
		last.file = nil
	}
	m.dir.beforeStep("logcreate")
	name := noncePrefix + strconv.FormatInt(now.UnixNano(), 36) + nonceSuffix
	file, err := m.dir.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store used nonces: %w", err)
	}
	m.dir.beforeStep("logdirsync")
	if err := m.dir.syncNames(); err != nil {
		_ = file.Close()
		_ = m.dir.root.Remove(name) // it is empty
		return nil, err
	}
	log := &nonceLog{name: name, file: file, startedAt: now}
	m.logs = append(m.logs, log)
	return log, nil
}

// pruneLogs removes the logs whose nonces have all expired.
func (m *Nonces) pruneLogs(now time.Time) {
	kept := m.logs[:0]
	for _, log := range m.logs {
		if log.file != nil || log.expiresAt.After(now) {
			kept = append(kept, log)
			continue
		}
		m.dir.beforeStep("logremove")
		if err := m.dir.root.Remove(log.name); err != nil && !errors.Is(err, os.ErrNotExist) {
			kept = append(kept, log)
		}
	}
	m.logs = kept
}

// Close waits for the write in progress.
func (m *Nonces) Close() error {
	m.mu.Lock()
	m.closed = true
	last, writing := m.nextBatch.done, m.writing
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
