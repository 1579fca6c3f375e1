import sys, time, functools
import numpy as np, tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(1); tf.config.threading.set_inter_op_parallelism_threads(1)
from gtrxl_tf import datasets, config, sources, environments
from gtrxl_tf.agents.distillation import network as nl, agent as al, policy as pl
from gtrxl_tf.training import learning_processes as el
from gtrxl_tf.cores import segment_transformer as st
from gtrxl_tf.training import history_schemes as hs, schemes, learner as ll, offline
from gtrxl_tf.analysis import histories as curves
name, steps, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
over = dict(x.split('=') for x in sys.argv[4:])
lr = float(over.pop('lr', 2e-3)); po = int(over.pop('po', 1)); seed=int(over.pop('seed',0)); smooth=float(over.pop('smooth',0)); norm=over.pop('norm','pre'); nch=int(over.pop('nch', 1)); chunks=int(over.pop('chunks',0)); S=int(over.pop('S',50)); rel=over.pop('rel','none'); grad=over.pop('grad','stopped'); M=int(over.pop('M',0)); P=int(over.pop('P',0)); temp=float(over.pop('temp',1)); drop=float(over.pop('drop',0))
rec={'adf':'none','adr':'none','mem':'none','xl':'xl','ed':'same_layer'}[name]
train = datasets.open_dataset(path + '/training'); ev = datasets.open_dataset(path + '/evaluation')
T = int(train.lengths[0])
tf.keras.utils.set_random_seed(seed)
core = st.SegmentTransformer(2, 64, 4, 16, 256, norm=norm, segment_length=S, recurrence=rec, memory_length=M, num_prefix=P, positions=rel, memory_gradient=grad, dropout=drop, attention_dropout=drop)
net = nl.DistillationNetwork(train.action_spec(), core, previous_observation=bool(po), num_positions=T)
net.create_variables(train.observation_spec())
agent = al.DistillationAgent(net, smooth)
opt = tf.keras.optimizers.AdamW(learning_rate=offline._WarmUpAndDecay(lr, 100, 'cosine', steps, 0.1), weight_decay=1e-4, beta_1=.9, beta_2=.999, epsilon=1e-8)
learner = ll.Learner(agent, opt, tf.distribute.get_strategy(), 1.0)
tr = schemes.Trajectories(train, net.action_space, S, nch, 32, seed=seed, return_scale=1.0)
scheme = (hs.HistoryChunks if chunks else hs.HistoryWindows)(tr, net.initial_state, steps)
print(name, 'params', sum(int(np.prod(v.shape)) for v in net.trainable_variables), flush=True)
learner_step0 = None
tot=0
for step in range(steps):
  m = learner.step(scheme.batch(step)); scheme.observe(step, m)
  if step == 5: t0 = time.process_time(); w0=time.time()
  if step % 100 == 0: print(step, {k: round(float(v), 3) for k, v in m.items() if k != 'carried'}, flush=True)
cpu=time.process_time() - t0
print('train CPU s %.1f wall %.1f ms/step %.1f' % (cpu, time.time() - w0, 1000*cpu/(steps-6)), flush=True)
family = environments.DarkRoomFamily('dr', num_episodes=40) if T==800 else environments.DarkRoomFamily('dr')
col = sources.HistoryCollector(family, functools.partial(sources.QLearning), num_histories=4000)
tasks = col.evaluation_tasks()
pol = pl.DistillationPolicy(net, train.observation_spec(), train.action_spec(), window=(S*nch if rec=='none' else None), temperature=temp)
src = el.PolicySource(pol)
t0 = time.process_time()
h = src.play(tasks, T)
print('eval CPU s %.1f' % (time.process_time() - t0))
r = np.stack([ev.episode(i).reward for i in range(ev.num_episodes)]); e = np.stack([ev.episode(i).end for i in range(ev.num_episodes)])
f = lambda x: ' '.join('%.2f' % y for y in x)
sc = curves.curve(r, e, 20).mean; mc = curves.curve(h.reward, h.end, 20).mean
print('source', f(sc)); print('model ', f(mc)); 
s5 = curves.curve(r, e, 5).mean[-1]; m5 = curves.curve(h.reward, h.end, 5).mean[-1]
print('RATIO last fifth %s %.3f = %.3f / %.3f' % (' '.join(sys.argv[1:]), m5 / s5, m5, s5), flush=True)
