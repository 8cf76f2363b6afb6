// Command hostile attacks real controllers and registries and counts the refusals.
//
//	go run ./test/hostile [-only REGEXP] [-minutes 15] [-json FILE] [-keep]
//
// Each attack is one line: how often it was tried, how often it was refused and with what, and its
// cost for other callers: a bystander starts and ends instances continuously. Then a mixed load
// runs for some minutes: normal jobs alone, normal jobs with all attackers together, and then with
// hostile callers as well, who fill their share of every limit. Start times and server memory of
// the phases are compared.
//
// Every loop is bounded in count and rate, and everything happens on loopback. Attackers have
// separate addresses (127.0.1.x), since services limit callers by address.
//
// Invariant: a run succeeds only when every attack was tried and repelled and the mixed load was
// measured within its targets. An attack that cannot be tried on this machine is skipped, and fails
// the run.
package main
