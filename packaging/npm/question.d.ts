/** `<ostraka-question src="https://tally.example">`: asks, sends one answer, shows the signed result. */
export class OstrakaQuestion extends HTMLElement {}

declare global {
  interface HTMLElementTagNameMap { "ostraka-question": OstrakaQuestion }
}
