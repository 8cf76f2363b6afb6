package controllerrest_test

import (
	"testing"

	"github.com/buildyard/buildyard/api"
)

// TestGuessesOfTheJoinToken: without authentication too, an address that has failed often is
// refused before anything is compared, with the right token as well.
func TestGuessesOfTheJoinToken(t *testing.T) {
	c := newCloud(t)
	join := func(token string) answer {
		return c.call("POST", api.PathJoin, `{"protocol":1,"token":"`+token+`","name":"n"}`)
	}
	codes := map[int]int{}
	for range 200 { // an attempt comes back every two seconds
		codes[join("wrong").code]++
	}
	if codes[401] < 30 || codes[429] == 0 || codes[401]+codes[429] != 200 {
		t.Errorf("guesses are answered %v", codes)
	}
	for range 10 {
		for join("wrong").code != 429 {
		}
		if a := join(c.Nodes.JoinToken()); a.code == 429 {
			want(t, "message", a.Message, "Too many failed attempts; try again later")
			return
		}
	}
	t.Error("the right token is taken from an address that guesses")
}
