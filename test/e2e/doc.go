// Command e2e uses the portal as people do: in a real Chromium and Firefox, against the real
// controller and registry with simulated nodes, light and dark, on a wide screen and on a phone.
//
// It is not a test of the API: what a flow needs it makes with the public client, and what a
// flow is about it does on pages alone.
//
// Next to the screenshots of flows it leaves those of the design, if SHARED (default ../shared) has it, and the picture
// of the README.
//
// Invariant: a flow counts as passed when it did everything in all eight looks, and no look had
// a violation of the accessibility rules, an error in the console or a request to anybody but
// the cloud. A flow that is missing or skipped fails the run.
package main
