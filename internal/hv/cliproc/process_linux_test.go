package cliproc

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 "
	state, started, err := parseStat([]byte("12 (a) b) c) S" + rest + "4711 20"))
	if state != 'S' || started != 4711 || err != nil {
		t.Errorf("%c %d %v", state, started, err)
	}
	for _, bad := range []string{
		"", "1 (x", "1 (x) S 1", "1 (x) SS" + rest + "4711", "1 (x) S" + rest + "soon", "1 (x) \x00" + rest + "4711",
	} {
		if _, _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if state, _, err := parseStat(b); err == nil && state == 0 {
			t.Error("no state and no error")
		}
	})
}
