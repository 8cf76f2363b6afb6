package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
)

// TestServerMadePair holds the form that clients read.
func TestServerMadePair(t *testing.T) {
	w := newWorld(t)
	private, err := w.keys.Create(t.Context(), NewAPIKey{ID: "ci", TTL: 60, Groups: []string{"a", "b", "a"}})
	must(t, err)
	der, err := base64.StdEncoding.DecodeString(private.Reveal())
	must(t, err)
	pair, err := x509.ParsePKCS1PrivateKey(der)
	must(t, err)
	key, err := w.keys.Get("ci")
	must(t, err)
	public, err := x509.ParsePKIXPublicKey(key.PublicKey)
	must(t, err)
	if pair.N.BitLen() != 2048 || !pair.PublicKey.Equal(public) || strings.ContainsAny(private.Reveal(), "\r\n-_") {
		t.Error("the pair is not one of the promised form")
	}
	if !slices.Equal(key.Groups, []string{"a", "b"}) || key.Expires.Sub(key.Created) != time.Minute ||
		len(key.Generation) != 16 {
		t.Errorf("%+v", key)
	}
	text, err := w.tap.Hand("ci")
	must(t, err)
	if _, err := w.shake(t, "ci", open(t, pair, text)); err != nil {
		t.Error(err)
	}
}

func TestClientMadePairs(t *testing.T) {
	for _, pair := range []*rsa.PrivateKey{pair2048(), pair4096()} {
		der, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
		must(t, err)
		for _, coding := range []*base64.Encoding{
			base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding,
		} {
			w := newWorld(t)
			must(t, w.create(t, NewAPIKey{ID: "ci", TTL: 60, PublicKey: " " + coding.EncodeToString(der) + "\n"}))
			text, err := w.tap.Hand("ci")
			must(t, err)
			if _, err := w.shake(t, "ci", open(t, pair, text)); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestPublicKeysAreRefusedWithASentence(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	short := &rsa.PublicKey{N: new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 2046), big.NewInt(1)), E: 65537}
	even := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}
	long := &rsa.PublicKey{N: new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 4096), big.NewInt(1)), E: 65537}
	good := publicText(t, &pair2048().PublicKey)
	der, err := base64.StdEncoding.DecodeString(good)
	must(t, err)
	for name, c := range map[string]struct{ text, words string }{
		"1024 bits": {publicText(t, &mustMake(1024).PublicKey), "1024 bits"},
		"2047 bits": {publicText(t, short), "2047 bits"},
		"4097 bits": {publicText(t, long), "4097 bits"},
		"even":      {publicText(t, even), "cannot encrypt"},
		"elliptic":  {publicText(t, &ec.PublicKey), "must be an RSA key"},
		"ed25519":   {publicText(t, ed), "must be an RSA key"},
		"PKCS#1": {
			base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PublicKey(&pair2048().PublicKey)),
			"PKCS#1",
		},
		"PEM": {
			string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})),
			"remove the BEGIN and END lines",
		},
		"several lines":   {good[:64] + "\n" + good[64:], "single line"},
		"more behind it":  {base64.StdEncoding.EncodeToString(append(slices.Clone(der), 0)), "not in PKIX DER form"},
		"half":            {good[:len(good)/2], "not in PKIX DER form"},
		"not base64":      {"***", "not base64"},
		"long":            {strings.Repeat("A", 5000), "longer than 4096 bytes"},
		"a byte too long": {strings.Repeat("A", 4097), "longer than 4096 bytes"},
		"just not long":   {strings.Repeat("A", 4096), "not in PKIX DER form"},
		"the private one": {
			base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PrivateKey(pair2048())),
			"not in PKIX DER form",
		},
	} {
		w := newWorld(t)
		err := w.create(t, NewAPIKey{ID: "x", TTL: 60, PublicKey: c.text})
		if farm.CodeOf(err) != farm.CodeInvalid || !strings.HasPrefix(err.Error(), "publicKey: ") ||
			!strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.keys.List()) != 0 {
			t.Errorf("%s: the key is there", name)
		}
	}
}

func TestBoundsOfKeys(t *testing.T) {
	public := publicText(t, &pair2048().PublicKey)
	many := make([]string, MaxKeyGroups+1)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	w := newWorld(t)
	for words, change := range map[string]func(*NewAPIKey){
		"id: must have 1 to 128 bytes":                func(n *NewAPIKey) { n.ID = "" },
		"id: must have":                               func(n *NewAPIKey) { n.ID = strings.Repeat("ü", 65) },
		"id: must be printable":                       func(n *NewAPIKey) { n.ID = "a\nb" },
		"id: must be printable text":                  func(n *NewAPIKey) { n.ID = "a\u202eb" },
		"id: must be printable text, without":         func(n *NewAPIKey) { n.ID = " a" },
		"id: must be printable text, without leading": func(n *NewAPIKey) { n.ID = "a\xff" },
		"id: root is the name":                        func(n *NewAPIKey) { n.ID = "Root" },
		"ttl: must be 1 to 3153600000 seconds":        func(n *NewAPIKey) { n.TTL = 0 },
		"ttl: must be 1 to 3153600000":                func(n *NewAPIKey) { n.TTL = MaxKeyTTL + 1 },
		"ttl: must be 1":                              func(n *NewAPIKey) { n.TTL = -1 },
		"groups: an API key may have at most 100":     func(n *NewAPIKey) { n.Groups = many },
		"groups: each group must be printable":        func(n *NewAPIKey) { n.Groups = []string{"a", ""} },
		"groups: each group must be printable text":   func(n *NewAPIKey) { n.Groups = []string{"a\t"} },
		"groups: each group must be printable text of 1 to": func(n *NewAPIKey) {
			n.Groups = []string{strings.Repeat("x", 257)}
		},
	} {
		n := NewAPIKey{ID: "good", TTL: 60, PublicKey: public}
		change(&n)
		refusedWith(t, w.create(t, n), farm.CodeInvalid, words)
	}
	for _, id := range []string{"a", "Müller@example.com", "ci/build #1: a+b", strings.Repeat("x", 128), "rooty"} {
		must(t, w.create(t, NewAPIKey{ID: id, TTL: MaxKeyTTL, PublicKey: public, Groups: many[1:]}))
		refusedWith(t, w.create(t, NewAPIKey{ID: id, TTL: 60, PublicKey: public}), farm.CodeRefused, "already exists")
	}
	full := make([]farm.APIKey, MaxKeys)
	for i := range full {
		full[i] = farm.APIKey{ID: fmt.Sprint(i), Expires: time.Now().Add(time.Hour)}
	}
	keys := NewAPIKeys(NewKeyTable(full[1:], nil))
	_, err := keys.Create(t.Context(), NewAPIKey{ID: "the last", TTL: 60, PublicKey: public})
	must(t, err)
	_, err = keys.Create(t.Context(), NewAPIKey{ID: "one more", TTL: 60, PublicKey: public})
	refusedWith(t, err, farm.CodeRefused, "limit (10000)")
}

func TestChangesOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.add(t, "ci", "a")
		session := bearer(t, w.session(t, "ci"))
		groups := func(want ...string) {
			t.Helper()
			who, err := w.sessions.Verify(session)
			if err != nil || !slices.Equal(who.Groups, want) || who.Name != "ci" || who.KeyID != "ci" ||
				who.Method != ByKey || who.Root {
				t.Errorf("%+v, %v; want %v", who, err, want)
			}
		}
		groups("a")
		must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{Groups: &[]string{"b", "c", "b"}}))
		groups("b", "c")
		must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{}))
		ttl := int64(10)
		must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{TTL: &ttl}))
		groups("b", "c")
		time.Sleep(10 * time.Second)
		_, err := w.sessions.Verify(session)
		refusedAs(t, err, errSessionKey)
		_, err = w.shake(t, "ci", "AAAAAAAAAAAAAAAAAAAAAAAAAAA")
		refusedAs(t, err, errHandKey)
		if len(w.keys.List()) != 1 {
			t.Error("a key that has expired cannot be seen")
		}
		must(t, w.keys.Update(t.Context(), "ci", APIKeyChange{TTL: &ttl})) // prolonged, its sessions go on
		groups("b", "c")

		wrong := int64(0)
		refusedWith(t, w.keys.Update(t.Context(), "ci", APIKeyChange{TTL: &wrong}), farm.CodeInvalid, "ttl")
		refusedWith(t, w.keys.Update(t.Context(), "ci", APIKeyChange{Groups: &[]string{""}}), farm.CodeInvalid,
			"groups")
		for _, err := range []error{w.keys.Update(t.Context(), "who", APIKeyChange{}), w.keys.Delete(t.Context(),
			"who")} {
			if farm.CodeOf(err) != farm.CodeNotFound {
				t.Error(err)
			}
		}
	})
}

// TestDeletionEndsSessions: also when a key of the same id is made with the same pair.
func TestDeletionEndsSessions(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	session, secret := bearer(t, w.session(t, "ci")), w.hand(t, "ci")
	must(t, w.keys.Delete(t.Context(), "ci"))
	_, err := w.sessions.Verify(session)
	refusedAs(t, err, errSessionKey)
	w.add(t, "ci")
	_, err = w.sessions.Verify(session)
	refusedAs(t, err, errSessionForeign)
	_, err = w.shake(t, "ci", secret)
	refusedAs(t, err, errShakeSecret)
	if w.hand(t, "ci") == "" { // the parsed key is the new one's
		t.Error("no secret")
	}
}

// TestANewPairCounts: the parsed form of a deleted key is not used for the next one.
func TestANewPairCounts(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	w.hand(t, "ci")
	must(t, w.keys.Delete(t.Context(), "ci"))
	must(t, w.create(t, NewAPIKey{ID: "ci", TTL: 60, PublicKey: publicText(t, &pair4096().PublicKey)}))
	text, err := w.tap.Hand("ci")
	must(t, err)
	open(t, pair4096(), text)
}

func TestExpiredKeysGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, id := range []string{"old", "again", "new"} {
			must(t, w.create(t, NewAPIKey{ID: id, TTL: 60, PublicKey: publicText(t, &pair2048().PublicKey)}))
		}
		was, _ := w.keys.Get("again")
		time.Sleep(time.Minute)
		w.add(t, "again") // over one that has expired
		if is, _ := w.keys.Get("again"); is.Generation == was.Generation || is.Expired(time.Now()) {
			t.Errorf("%+v", is)
		}
		time.Sleep(expiredKeyRetention - time.Second)
		ttl := int64(5)
		must(t, w.keys.Update(t.Context(), "new", APIKeyChange{TTL: &ttl}))
		if n, err := w.keys.PruneExpired(t.Context()); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		time.Sleep(time.Second)
		if n, err := w.keys.PruneExpired(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if _, err := w.keys.Get("old"); farm.CodeOf(err) != farm.CodeNotFound {
			t.Error(err)
		}
	})
}

// TestOnePairAtATime: a caller whose context has ended stops waiting.
func TestOnePairAtATime(t *testing.T) {
	w := newWorld(t)
	w.keys.generating <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.keys.Create(ctx, NewAPIKey{ID: "x", TTL: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// contended is a store in which another writer is always, or for a while, first.
type contended struct {
	*KeyTable
	times int
}

func (c *contended) Replace(ctx context.Context, old, k farm.APIKey) error {
	if c.times--; c.times >= 0 {
		other := old
		other.Groups = append(slices.Clone(old.Groups), fmt.Sprint(c.times))
		if err := c.KeyTable.Replace(ctx, old, other); err != nil {
			return err
		}
	}
	return c.KeyTable.Replace(ctx, old, k)
}

func TestChangesAtTheSameTime(t *testing.T) {
	for _, times := range []int{3, 1000} {
		store := &contended{NewKeyTable(nil, nil), times}
		keys := NewAPIKeys(store)
		_, err := keys.Create(t.Context(),
			NewAPIKey{ID: "ci", TTL: 60, PublicKey: publicText(t, &pair2048().PublicKey)})
		must(t, err)
		ttl := int64(100)
		err = keys.Update(t.Context(), "ci", APIKeyChange{TTL: &ttl})
		key, _ := keys.Get("ci")
		switch {
		case times == 3 && (err != nil || len(key.Groups) != 3 || key.Expires.Sub(key.Created) < 99*time.Second):
			t.Errorf("%+v, %v", key, err)
		case times == 1000 && farm.CodeOf(err) != farm.CodeBusy:
			t.Error(err)
		}
	}
}

func FuzzPublicKey(f *testing.F) {
	good, err := x509.MarshalPKIXPublicKey(&pair2048().PublicKey)
	must(f, err)
	f.Add(base64.StdEncoding.EncodeToString(good))
	f.Add(base64.RawURLEncoding.EncodeToString(good))
	f.Add(base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PublicKey(&pair2048().PublicKey)))
	f.Add("-----BEGIN PUBLIC KEY-----")
	f.Fuzz(func(t *testing.T, text string) {
		key, der, err := ParsePublicKey(text)
		if err != nil {
			if farm.CodeOf(err) != farm.CodeInvalid {
				t.Fatal(err)
			}
			return
		}
		again, err := parseDER(der)
		if err != nil || !again.Equal(key) {
			t.Fatalf("what is stored cannot be read: %v", err)
		}
		if _, err := encrypt(again, strings.Repeat("x", secretTextLength)); err != nil {
			t.Fatal(err)
		}
	})
}

// failing is a table of keys of which some cannot be deleted.
type failing struct {
	*KeyTable
	errs map[string]error // id -> why
}

func (f failing) Delete(ctx context.Context, old farm.APIKey) error {
	if err := f.errs[old.ID]; err != nil {
		return err
	}
	return f.KeyTable.Delete(ctx, old)
}

// TestSweepContinues: Sweep continues after a key that was changed concurrently, and returns any other
// error.
func TestSweepContinues(t *testing.T) {
	errDisk := errors.New("disk full")
	for _, c := range []struct {
		b    error
		n    int
		want error
	}{{ErrKeyChanged, 2, nil}, {errDisk, 1, errDisk}} {
		over := time.Now().Add(-expiredKeyRetention)
		keys := []farm.APIKey{
			{ID: "a", Expires: over},
			{ID: "b", Expires: over},
			{ID: "c", Expires: over},
			{ID: "d", Expires: over.Add(time.Hour)},
		}
		store := failing{NewKeyTable(keys, nil), map[string]error{"b": c.b}}
		if err := NewAPIKeys(failing{store.KeyTable, map[string]error{"b": errDisk}}).Delete(t.Context(),
			"b"); !errors.Is(err, errDisk) {
			t.Errorf("deleted: %v", err)
		}
		if n, err := NewAPIKeys(store).PruneExpired(t.Context()); n != c.n || !errors.Is(err, c.want) ||
			len(store.List()) != len(keys)-n {
			t.Errorf("%v: %d removed, %d left, %v", c.b, n, len(store.List()), err)
		}
	}
}

// racing is a table of keys in which another writer is always first, or the disk is full.
type racing struct {
	*KeyTable
	err error
}

func (r racing) Create(context.Context, farm.APIKey) error { return r.err }

func TestKeysThatAreNotStored(t *testing.T) {
	n := NewAPIKey{ID: "ci", TTL: 60, PublicKey: publicText(t, &pair2048().PublicKey)}
	_, err := NewAPIKeys(racing{NewKeyTable(nil, nil), ErrKeyExists}).Create(t.Context(), n)
	refusedWith(t, err, farm.CodeRefused, "API key ci already exists")
	errDisk := errors.New("disk full")
	if _, err = NewAPIKeys(racing{NewKeyTable(nil, nil), errDisk}).Create(t.Context(), n); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

// TestParsedKeysAreReleased: a public key is parsed once, and kept as long as its record.
func TestParsedKeysAreReleased(t *testing.T) {
	w := newWorld(t)
	w.add(t, "ci")
	key, err := w.keys.Get("ci")
	must(t, err)
	first, err := w.keys.publicKeyOf(key)
	must(t, err)
	if again, err := w.keys.publicKeyOf(key); err != nil || again != first {
		t.Errorf("it is parsed again: %v", err)
	}
	must(t, w.keys.Delete(t.Context(), "ci"))
	if _, kept := w.keys.parsedKeys.Load("ci"); kept {
		t.Error("the public key of a deleted key is kept")
	}
	key.Generation, key.PublicKey = "other", []byte("junk")
	if _, err := w.keys.publicKeyOf(key); err == nil || !strings.Contains(err.Error(), "cannot be parsed") {
		t.Errorf("a damaged record: %v", err)
	}
}

func TestSameKey(t *testing.T) {
	a := farm.APIKey{ID: "a", Groups: []string{"g"}, PublicKey: []byte("p"), Created: time.Unix(1,
		0), Expires: time.Unix(2, 0), Generation: "x"}
	same := a
	same.Created = a.Created.UTC()
	if !SameKey(a, same) {
		t.Error("a record is not the same as itself")
	}
	for name, change := range map[string]func(*farm.APIKey){
		"id": func(k *farm.APIKey) { k.ID = "b" }, "groups": func(k *farm.APIKey) { k.Groups = nil },
		"public key": func(k *farm.APIKey) { k.PublicKey = nil },
		"generation": func(k *farm.APIKey) { k.Generation = "" },
		"creation":   func(k *farm.APIKey) { k.Created = time.Time{} },
		"end":        func(k *farm.APIKey) { k.Expires = time.Time{} },
	} {
		b := a
		if change(&b); SameKey(a, b) {
			t.Errorf("another %s is the same", name)
		}
	}
}
