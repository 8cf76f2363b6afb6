package registrymirror

import (
	"crypto/sha256"
	"sync"
	"time"
)

// maxPermits bounds the remembered permissions, about 200 bytes each.
const maxPermits = 50_000

// permitKey is a layer, or the query of a manifest, and the hash of the credential of a caller.
type permitKey struct {
	credential [sha256.Size]byte
	object     string
}

type permit struct {
	at   time.Time
	size int64 // of a layer
}

// permits are the permissions that the origin gave.
type permits struct {
	now func() time.Time

	mu   sync.Mutex
	list map[permitKey]permit
}

func newPermits(now func() time.Time) *permits {
	return &permits{now: now, list: map[permitKey]permit{}}
}

// find returns a permission that is not older than age.
func (p *permits) find(key permitKey, age time.Duration) (size int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.list[key]
	return found.size, ok && p.now().Sub(found.at) < age
}

func (p *permits) add(key permitKey, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if len(p.list) >= maxPermits {
		for k, old := range p.list {
			if now.Sub(old.at) >= StalePermitTime || len(p.list) > maxPermits*9/10 {
				delete(p.list, k)
			}
		}
	}
	p.list[key] = permit{now, size}
}

func (p *permits) remove(key permitKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.list, key)
}
