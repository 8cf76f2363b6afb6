package imagescan

import "testing"

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		about("disk", "it is damaged"): "disk: it is damaged", about("disk", "the disk is damaged"): "the disk is damaged",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
